// What a page in another tab tries on the client; its last argument takes what came of it.

const [app, done] = arguments;
const found = {};
const noted = (name, work) => {
  try {
    found[name] = work();
  } catch (error) {
    found[name] = error.name;
  }
};
new BroadcastChannel("bridge").postMessage({ gone: true });
localStorage.setItem("identity", "{}");
const opened = window.open(app, "victim");
const frame = document.createElement("iframe");
frame.src = app;
document.body.append(frame);
const socket = new Promise((resolve) => {
  const one = new WebSocket(app.replace("https", "wss").replace("app/", "api/v1/ws"));
  one.onopen = () => resolve("open");
  one.onerror = () => resolve("refused");
});
const read = fetch(app.replace("app/", "api/v1/sessions"), { credentials: "include" }).then(
  (answer) => answer.status,
  (error) => error.name,
);
const isShut = () => opened?.closed !== false && !frame.contentDocument;
(async () => {
  // until the client has severed both, as soon as it has begun to load
  for (let turn = 0; turn < 600 && !isShut(); turn += 1)
    await new Promise((go) => setTimeout(go, 100));
  for (const message of [{ gone: true }, "take over", { call: "forget", args: [] }, { led: "x" }]) {
    noted("post", () => opened.postMessage(message, "*"));
    noted("frame", () => frame.contentWindow.postMessage(message, "*"));
  }
  noted("document", () => opened.document.title);
  noted("token", () => opened.indexedDB.databases());
  noted("inFrame", () => frame.contentDocument?.body?.innerText ?? "closed");
  found.closed = opened === null || opened.closed;
  found.socket = await socket;
  found.read = await read;
  done(found);
})();
