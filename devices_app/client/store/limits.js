// Numbers of the client, each with its reason.

export const OUTPUT_SHOWN = 20_000; // characters of a tool's result that a card holds at first
export const ROWS_KEPT = 10_000; // rows of a session: as many as the bridge keeps
export const WINDOW = 200; // items of a list that stand in the DOM at once
export const LOADED = 600; // rows of a session that are read when it is opened
export const DRAFT_MS = 400; // a draft is stored so long after the last key
