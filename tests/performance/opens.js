document.addEventListener('click', () => {
  // Measures from a tap to the frame with the session's newest rows.
  const tapped = performance.now();
  new MutationObserver((changes, observer) => {
    if (!document.querySelector('.bubble.mine')) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => (window.opened = performance.now() - tapped)));
  }).observe(document, {subtree: true, childList: true});
}, {capture: true, once: true});
