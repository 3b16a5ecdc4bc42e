// Serve this version of the client from a cache, so that it starts at once and without a network.
// The server writes `self.CLIENT`, the version and its files, before these lines. The service
// worker answers for the page and the files only; it never keeps the bridge's messages.

const worker = /** @type {any} */ (self);
const { version, files } = worker.CLIENT;
const CACHE = `bridge-${version}`;
const PAGE = "/app/";
const BASE = `/app/${version}/`;
const SHARE = `${PAGE}share`; // as the manifest says
const SHARED_MAX = 11; // one more than a message takes, which is said then

async function keep() {
  const page = await fetch(PAGE, { cache: "no-cache", credentials: "omit" });
  // Between the two requests the bridge may have become another version.
  if (!page.ok || !page.headers.get("ETag")?.includes(version))
    throw new Error("The page is of another version.");
  const cache = await caches.open(CACHE);
  await cache.addAll(files.map((/** @type {string} */ name) => BASE + name));
  await cache.put(PAGE, page);
}

async function dropOthers() {
  for (const name of await caches.keys())
    if (name.startsWith("bridge-") && name !== CACHE) await caches.delete(name);
}

/** @param {string} path @param {Request} request */
async function answer(path, request) {
  return (await caches.match(path, { cacheName: CACHE })) ?? fetch(request);
}

worker.addEventListener("install", (/** @type {any} */ event) => event.waitUntil(keep()));
worker.addEventListener("activate", (/** @type {any} */ event) => event.waitUntil(dropOthers()));
// Only a person decides when the next version takes over: see net/served.js.
worker.addEventListener(
  "message",
  (/** @type {any} */ { data }) => data === "take over" && worker.skipWaiting(),
);
worker.addEventListener("fetch", (/** @type {any} */ event) => {
  const { request } = event;
  const { origin, pathname } = new URL(request.url);
  if (origin !== worker.location.origin) return;
  if (request.method === "POST" && pathname === SHARE) event.respondWith(takeShared(request));
  if (request.method !== "GET") return;
  if (request.mode === "navigate") event.respondWith(answer(PAGE, request));
  else if (pathname.startsWith(BASE)) event.respondWith(answer(pathname, request));
});

const part = encodeURIComponent;

/** @param {Free} _ */
function screenOf({ notification_type: type, session_id: session, tool_call_id: call }) {
  if (type === "approval_required" && call)
    return `${PAGE}approvals/${part(session)}/${part(call)}`;
  return session ? `${PAGE}s/${part(session)}` : PAGE;
}

// A service may deliver a push without its content, and browsers one that is no JSON.
/** @param {any} data */
function read(data) {
  try {
    return data?.json() ?? {};
  } catch {
    return {};
  }
}

// Browsers want something to be shown for every push.
/** @param {Free} said */
function show(said) {
  const { title = "The bridge has news", body = "" } = said;
  const about = { body, tag: screenOf(said), data: screenOf(said), icon: `${BASE}icon-512.png` };
  // What takes the place of one that is shown is heard only so.
  const renotify = Boolean(said.reminder);
  return worker.registration.showNotification(title, { ...about, renotify });
}

// A page that was loaded before its worker was there is none of the worker's own.
/** @returns {Promise<any[]>} */
async function openPages() {
  const windows = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
  return windows.filter((/** @type {any} */ { url }) => new URL(url).pathname.startsWith(PAGE));
}

/** @param {string} path */
async function open(path) {
  const pages = await openPages();
  const tab = pages.find(({ focused }) => focused) ?? pages[0];
  if (!tab) return worker.clients.openWindow(path);
  tab.postMessage({ open: path });
  return tab.focus();
}

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

// Where net/db.js keeps things by name. It is not made here: its layout is not known here.
/**
 * @template T
 * @param {IDBTransactionMode} mode @param {(store: IDBObjectStore) => IDBRequest<T>} ask
 */
async function inKept(mode, ask) {
  const request = indexedDB.open("bridge");
  request.onupgradeneeded = () => request.transaction?.abort();
  const db = await done(request);
  try {
    return await done(ask(db.transaction("kept", mode).objectStore("kept")));
  } finally {
    db.close();
  }
}

/** @param {string} name @returns {Promise<any>} */
const kept = (name) => inKept("readonly", (store) => store.get(name));
/** @param {unknown} shared */
const keepShared = (shared) => inKept("readwrite", (store) => store.put(shared, "shared"));

// What another app shares stays on this device; the page asks where it goes (views/share.js). What
// cannot be kept has not come, which the page says.
/** @param {Request} request */
async function takeShared(request) {
  try {
    const form = await request.formData();
    const words = ["title", "text", "url"].map((name) => form.get(name)).filter(Boolean);
    const files = form.getAll("files").filter((one) => one instanceof File && one.size);
    const shared = { text: [...new Set(words)].join("\n"), files: files.slice(0, SHARED_MAX) };
    if (shared.text || files.length) await keepShared(shared);
  } catch {
    // the page finds nothing
  }
  return Response.redirect(SHARE, 303);
}

/** @param {string} path @param {Free} body */
async function tell(path, body) {
  const token = (await kept("identity"))?.tokens.at(-1);
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  return fetch(`/api/v1/push/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
}

/** @param {Free} said */
async function showAndTell(said) {
  await show(said);
  // The bridge is told as far as it can be reached; that it was shown does not hang on it.
  if (said.notification_id) await tell("receipt", { notification_id: said.notification_id });
  for (const page of await openPages()) page.postMessage("shown");
}

/** @param {any} event */
async function renew({ newSubscription, oldSubscription }) {
  const { pushManager } = worker.registration;
  const key = oldSubscription?.options.applicationServerKey ?? (await kept("push-key"));
  const options = { userVisibleOnly: true, applicationServerKey: key };
  const subscription = newSubscription ?? (await pushManager.subscribe(options));
  await tell("subscription", { subscription: subscription.toJSON() });
}

worker.addEventListener("push", (/** @type {any} */ event) =>
  event.waitUntil(showAndTell(read(event.data)).catch(() => {})),
);
// What fails here the page does when it is opened.
worker.addEventListener("pushsubscriptionchange", (/** @type {any} */ event) =>
  event.waitUntil(renew(event).catch(() => {})),
);
worker.addEventListener("notificationclick", (/** @type {any} */ event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data));
});
