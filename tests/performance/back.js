(() => {
  // Marks how long after the page woke its connection was ready again: the sign shows, then hides.
  const sign = document.querySelector('.connection');
  document.addEventListener('resume', () => {
    const woke = performance.now();
    window.woke = Date.now();
    window.back = undefined;
    new MutationObserver(() => {
      if (sign.hidden) window.back ??= performance.now() - woke;
    }).observe(sign, {attributes: true, attributeFilter: ['hidden']});
  }, {once: true});
})();
