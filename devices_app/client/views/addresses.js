// Map addresses to screens.

export const BASE = "/app/";

const part = encodeURIComponent;
/** @type {Record<ScreenName, (...values: string[]) => string>} */
const SCREENS = {
  home: () => "",
  approvals: () => "approvals",
  approval: (key) => `approvals/${key.split("\n").map(part).join("/")}`,
  new: () => "new",
  share: () => "share",
  settings: () => "settings",
  wrong: () => "wrong",
  session: (id, tab = "chat") => `s/${part(id)}${tab === "chat" ? "" : `/${tab}`}`,
  found: (id, row) => `s/${part(id)}/at/${part(row)}`,
  search: () => "search",
  file: (id, path) => `s/${part(id)}/files/${part(path)}`,
};

/**
 * Return a screen's address.
 *
 * @param {ScreenName} name
 * @param {...string} values
 */
export const addressOf = (name, ...values) => BASE + SCREENS[name](...values);

/**
 * Return the screen of an address; home for an unknown one.
 *
 * @param {string} path
 */
export function screenOf(path) {
  const [first, second, third, ...rest] = path.slice(BASE.length).split("/").map(decoded);
  if (first === "approvals")
    return { name: "approvals", approval: second ? `${second}\n${third}` : "" };
  if (first === "s" && second)
    return {
      name: "session",
      id: second,
      tab: ["changes", "files"].includes(third) ? third : "chat",
      path: rest.join("/"),
    };
  return { name: ["new", "search", "share", "settings", "wrong"].includes(first) ? first : "home" };
}

// A damaged address is taken as it stands.
/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
