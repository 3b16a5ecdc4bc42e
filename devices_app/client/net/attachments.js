// Fetch and send a session's pictures and files over HTTP, with the device's token (D70).

import { named } from "../protocol/messages.js";

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
 * Upload a file; sent again under the same id it is kept once. Returns the attachment's id.
 *
 * @param {string | undefined} token @param {string} session @param {Carried} file
 * @param {Blob} body
 * @returns {Promise<string>}
 */
export async function uploadAttachment(token, session, { id, name }, body) {
  const headers = {
    "Content-Type": "application/octet-stream",
    "X-Client-Id": id,
    "X-File-Name": encodeURIComponent(name.toWellFormed()),
  };
  const response = await request(pathOf(session), token, { method: "POST", headers, body });
  return (await response.json()).attachment_id;
}
