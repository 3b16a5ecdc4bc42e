// Fetch and send a session's pictures and files over HTTP, with the device's token (D70).

import { named } from "../protocol/messages.js";
import { filesLeft, uploaded } from "../store/outbox.js";

const NAME_CHARS = 255; // more make no name anywhere, and a header too long
const PATIENCE_MS = 120_000; // 10 MB over a slow network

/** @param {string} session @param {string} [id] */
const pathOf = (session, id = "") =>
  ["/api/v1/sessions", encodeURIComponent(session), "attachments", encodeURIComponent(id)]
    .filter(Boolean)
    .join("/");

/**
 * @param {string} path @param {string | undefined} token @param {RequestInit} more
 */
async function request(path, token, { headers, ...more } = {}) {
  const response = await fetch(path, {
    headers: { Authorization: `Bearer ${token}`, .../** @type {any} */ (headers) },
    cache: "no-store",
    credentials: "omit",
    signal: AbortSignal.timeout(PATIENCE_MS),
    ...more,
  }).catch(() => {
    throw new Error("The bridge did not answer.");
  });
  if (response.ok) return response;
  const { message, code } = await response.json().catch(() => ({}));
  throw Object.assign(new Error(named(message ?? response.statusText)), {
    code: code ?? String(response.status),
  });
}

/**
 * Return an attachment's bytes, without the type that somebody said of them.
 *
 * @param {string | undefined} token @param {string} session @param {string} id
 */
export async function fetchAttachment(token, session, id) {
  const response = await request(pathOf(session, id), token);
  return new Blob([await response.arrayBuffer()]);
}

/**
 * Upload the files of a message that the bridge does not have yet.
 *
 * @param {import("./outgoing.js").Outgoing} outgoing @param {Item} item
 */
export async function uploadFiles(outgoing, item) {
  const { id, payload } = item.message;
  const { engine } = outgoing;
  const blobs = await outgoing.bytesOf(id);
  for (const file of filesLeft(item)) {
    const blob = blobs[/** @type {Carried[]} */ (item.files).indexOf(file)];
    if (!outgoing.find(id) || engine.stopped) return;
    if (!blob) throw Object.assign(new Error(`${file.name} is not kept.`), { code: "LOST" });
    const token = engine.identity.tokens.at(-1);
    const attachment = await uploadAttachment(token, payload.session_id, file, blob);
    outgoing.set(uploaded(outgoing.items, id, file.id, attachment));
  }
}

// Sent again under the same id it is kept once.
/**
 * @param {string | undefined} token @param {string} session @param {Carried} file
 * @param {Blob} body
 * @returns {Promise<string>} the attachment's id
 */
async function uploadAttachment(token, session, { id, name }, body) {
  const headers = {
    "Content-Type": "application/octet-stream",
    "X-Client-Id": id,
    "X-File-Name": encodeURIComponent(name.slice(-NAME_CHARS).toWellFormed()),
  };
  const response = await request(pathOf(session), token, { method: "POST", headers, body });
  return (await response.json()).attachment_id;
}
