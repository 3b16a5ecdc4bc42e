// Name what is loaded after the first screen, which the bridge serves as one file.

export { keepPush } from "./net/push.js";
export { openApproval } from "./views/approval.js";
export { newSessionView } from "./views/new_session.js";
export { sessionView } from "./views/session.js";
export { settingsView } from "./views/settings.js";
export { wrongView } from "./views/wrong.js";
