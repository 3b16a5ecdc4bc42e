// The few things that the client asks over HTTP.

/**
 * Ask the bridge over HTTP.
 *
 * @param {string} path below `/api/v1`
 * @param {string} token
 * @returns {Promise<any>} the decoded body
 * @throws {Error} with `code` and a message for a person, when the bridge refuses or is not there
 */
export async function ask(path, token, { timeout = 15_000 } = {}) {
  const response = await fetch(`/api/v1${path}`, {
    headers: { Authorization: `Bearer ${token}` },
    cache: "no-store",
    credentials: "omit",
    signal: AbortSignal.timeout(timeout),
  });
  const body = await response.json();
  if (!response.ok)
    throw Object.assign(new Error(body.message ?? response.statusText), {
      code: body.code ?? String(response.status),
    });
  return body;
}

/** Tell whether the page's own origin still answers: then only the socket is refused. */
export async function originAnswers() {
  try {
    await fetch("/app/", {
      method: "HEAD",
      cache: "no-store",
      credentials: "omit",
      signal: AbortSignal.timeout(5000),
    });
    return true;
  } catch {
    return false;
  }
}
