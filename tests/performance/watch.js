// Marks when the list of sessions, and when a connection that is ready, are first on the screen.
new MutationObserver(() => {
  window.listed ??= document.querySelector('.row-link .title') ? performance.now() : undefined;
  const sign = document.querySelector('.connection');
  window.live ??= sign && sign.hidden ? performance.now() : undefined;
}).observe(document, {subtree: true, childList: true, attributes: true});
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (data) {
  if (String(data).includes('approval_response')) window.decided ??= performance.now();
  return send.call(this, data);
};
