// Marks when the list of sessions, and when a connection that is ready, are first on the screen.
new MutationObserver(() => {
  window.listed ??= document.querySelector('.row-link .title') ? performance.now() : undefined;
  const sign = document.querySelector('.connection');
  window.live ??= sign && sign.hidden ? performance.now() : undefined;
}).observe(document, {subtree: true, childList: true, attributes: true});
// Marks when a card with a text is there, and when a person taps.
new MutationObserver(() => {
  const cards = [...document.querySelectorAll('.card')];
  if (cards.some((card) => card.textContent.includes(window.wanted))) window.carded ??= Date.now();
}).observe(document, {subtree: true, childList: true, characterData: true});
document.addEventListener('click', () => (window.tapped = performance.now()), true);
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (data) {
  const text = String(data);
  if (text.includes('"approval_response"')) window.decided ??= performance.now();
  if (text.includes('"type":"message"')) window.said ??= performance.now();
  return send.call(this, data);
};
