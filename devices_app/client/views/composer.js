// Take a person's messages to an agent: the field, the waiting messages, stop and resume.

import { button, fill, form, h, icon, keyed, setPart, setText, toast } from "../parts/dom.js";
import { twoSteps } from "../parts/sheet.js";
import { bytes, counted, oneLine } from "../parts/text.js";
import { filesLeft } from "../store/outbox.js";

/** @type {Record<string, string>} */
const STANDS = {
  observed: "This agent runs at the machine; it can be watched here, not spoken to.",
  ended: "This session has ended.",
  given: "Given back. It goes on at the machine with the command below, or here.",
  paused: "Paused. Your next message resumes it.",
  closed: "Closed, but the agent remembers it.",
};
const UNSAFE = "Waits for the connection, on this page only";
const NOT_KEPT = "The draft could not be kept: this device's storage is full or refused.";

/**
 * Make the foot of a conversation: waiting messages, the field, stop and resume.
 *
 * @param {string} id
 * @param {{ model: Model; sent(): void }} _
 */
export function composer(id, { model, sent }) {
  const area = h("textarea", {
    rows: "1",
    "aria-label": "Message to the agent",
    placeholder: "Message",
    enterkeyhint: matchMedia("(pointer: coarse)").matches ? "enter" : "send",
  });
  const grown = h("div.grow", {}, area); // as high as its text, which the stylesheet repeats unseen
  const send = h("button.round.primary", { type: "submit", "aria-label": "Send" }, icon("send"));
  const delay = button("button.round", () => later(), icon("later"));
  delay.setAttribute("aria-label", "When to send");
  const stop = button("button.round.danger", () => interrupt(), icon("stop"));
  stop.setAttribute("aria-label", "Stop the agent");
  const why = h("p.why", { role: "status" });
  const resume = button("button", () => wake(), "Resume");
  const end = twoSteps("End session", "Yes, end it", () => finish(), "quiet").node;
  const how = h("p.why"); // why it cannot be continued
  const take = button("button.primary.wide", () => takeOver(), "Continue here");
  const back = button("button.quiet", () => handBack(), "Give back to the terminal");
  const command = h("div");
  const rest = h("div.actions", {}, end, h("span.gap"), resume); // of one that rests
  const choose = /** @type {any} */ (h("input", { type: "file", multiple: true, hidden: true }));
  const clip = button("button.round.quiet", () => choose.click(), icon("clip"));
  clip.setAttribute("aria-label", "Attach pictures or files");
  const line = form("composer", () => say(), clip, choose, grown, stop, delay, send);
  const waiting = h("ul.outgoing");
  const node = h("div.foot", {}, waiting, why, how, command, take, rest, back, line);

  // Loaded with the first file.
  /** @type {ReturnType<typeof import("./attaching.js").attaching> | null} */
  let attached = null;
  const attaching = async () => {
    const { attaching, attachedBefore } = await import("./attaching.js");
    if (!attached) line.before((attached = attaching(() => grow())).node);
    return { chips: attached, attachedBefore };
  };
  /** @param {Iterable<File>} files */
  const attach = async (files) => {
    const given = [...files]; // the browser takes its list back
    try {
      if (given.length) await (await attaching()).chips.add(given);
    } catch (/** @type {any} */ error) {
      toast(error.message, "warn");
    }
  };
  choose.addEventListener("change", () => {
    attach(choose.files);
    choose.value = "";
  });
  area.addEventListener("paste", (/** @type {ClipboardEvent} */ event) => {
    const { files, types } = /** @type {DataTransfer} */ (event.clipboardData);
    if (!files.length || types.includes("text/plain")) return;
    event.preventDefault();
    attach(files);
  });
  for (const kind of ["dragover", "drop"])
    line.addEventListener(kind, (/** @type {any} */ event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      attach(event.dataTransfer.files); // none before it is dropped
    });

  model.draft(id).then((text) => {
    area.value ||= text ?? "";
    paint();
  });

  // Loaded with the first `/` or `@`.
  let completes = false;
  const complete = async () => {
    if (completes || !/(^|\s)[/@]/.test(area.value)) return;
    completes = true;
    const { completing } = await import("./completing.js");
    line.before(completing(area, id, model));
  };

  const grow = () => {
    grown.dataset.text = area.value;
    const isReady = attached?.isReady !== false && Boolean(area.value.trim() || attached?.count);
    delay.hidden = send.disabled = !isReady;
  };

  const later = async () => {
    const { askWhen } = await import("./later.js");
    askWhen(id, model, say);
  };

  const say = async (/** @type {When} */ more = {}) => {
    grow();
    if (send.disabled) return;
    const text = area.value.trim();
    const files = attached?.take() ?? [];
    area.value = "";
    grow();
    try {
      // The bridge takes no message without words: the names are.
      await model.call("say", id, text || files.map(({ name }) => name).join(", "), more, files);
      keep();
      sent();
    } catch (/** @type {any} */ error) {
      edit(text);
      attached?.put(files);
      toast(error.message, "warn");
    }
  };

  // With each key: a page may go away at any moment.
  const keep = () => model.keepDraft(id, area.value).catch(() => toast(NOT_KEPT, "warn"));

  /** @param {keyof Wire.Requests} type @param {Free} payload @param {string} said */
  const order = (type, payload, said) =>
    model.call("send", type, { session_id: id, ...payload }).then(
      () => toast(said),
      (error) => toast(error.message, "warn"),
    );
  const interrupt = () => order("session_interrupt", {}, "Stopping…");
  const finish = () => order("session_end", { reason: "user_request" }, "Ending…");

  // Loaded when it is asked for; what it says is said before anything is done.
  const sheets = () => import("./continuing.js");
  const takeOver = async () => {
    const { continueHere } = await sheets();
    continueHere(id, model, model.home.sessions[id]?.continue?.ends ?? false);
  };
  const handBack = async () => (await sheets()).giveBack(model.home.sessions[id], model);

  const wake = async () => {
    resume.disabled = true;
    try {
      await model.call("resume", id);
    } catch (/** @type {any} */ error) {
      toast(error.message, "warn");
    } finally {
      resume.disabled = false;
    }
  };

  area.addEventListener("input", () => {
    grow();
    keep();
    complete();
  });
  area.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      say();
    }
  });

  const paint = () => {
    grow();
    paintOutgoing(waiting, id, model);
    const session = model.home.sessions[id];
    const observed = session?.kind === "observed";
    const status = session?.session_status;
    const ended = status === "closed" && !session?.resumable;
    line.hidden = observed || (ended && !area.value);
    stop.hidden = status !== "created" && (session?.turn ?? "idle") === "idle";
    rest.hidden =
      observed ||
      !(status === "paused" || status === "error" || (status === "closed" && session?.resumable));
    const way = session?.continue; // what can be answered is answered on its card
    take.hidden = way?.how !== "take_over";
    setText(how, observed && way?.how === null ? oneLine(way.reason) : "");
    how.hidden = !how.textContent;
    const given = observed && status === "paused" && session?.resume_command;
    if (given && !command.firstChild)
      sheets().then(({ commandOf }) => fill(command, commandOf(given)));
    command.hidden = !given;
    back.hidden =
      observed || !session?.resume_command || !["active", "paused"].includes(status ?? "");
    const state = given ? "given" : ended ? "ended" : observed ? "observed" : status;
    setText(why, state === "error" ? oneLine(session.trouble) : (STANDS[state] ?? ""));
    why.hidden = !why.textContent;
  };
  /** @param {string} text @param {Attached[]} before */
  const edit = (text, before = []) => {
    if (before.length)
      attaching().then(({ chips, attachedBefore }) => chips.put(attachedBefore(before)));
    area.value = [text, area.value].filter(Boolean).join("\n");
    paint();
    keep();
    area.focus();
  };
  return { node, paint, edit };
}

// What this device has said and the bridge has not taken yet.
/** @param {Element_} place @param {string} id @param {Model} model */
function paintOutgoing(place, id, model) {
  const items = model.outbox.filter(
    ({ message }) => message.type === "message" && message.payload.session_id === id,
  );
  place.hidden = items.length === 0;
  /** @param {Element_} node @param {Item} item */
  const update = (node, item) => tell(node, item, model);
  /** @param {Item} item */
  const make = (item) => update(outgoing(item, model), item);
  keyed(place, items, { key: ({ message, state }) => `${message.id} ${state}`, make, update });
}

/** @param {Item} _ @param {Model} model */
function outgoing({ message: { id, payload }, state, files = [] }, model) {
  const again = button("button", () => model.call("retry", id), "Try again");
  const drop = button("button.quiet", () => model.call("discard", id), "Discard");
  return h(
    `li.bubble.mine.${state}`,
    {},
    h("p", {}, /** @type {Wire.Requests["message"]} */ (payload).content),
    files.map(({ name, size }) => h("p.meta", {}, `${oneLine(name)}, ${bytes(size)}`)),
    h("p.meta.stands"),
    state === "failed" && h("div.actions", {}, again, drop),
  );
}

/** @param {Element_} node @param {Item} item @param {Model} model */
function tell(node, item, model) {
  const { state, problem, kept } = item;
  const isReady = model.connection.phase === "ready";
  const left = filesLeft(item).length;
  const goes = left ? `sending: ${counted(left, "file")} to go` : "sending…";
  const sending = kept ? `Kept here, ${goes}` : `${goes[0].toUpperCase()}${goes.slice(1)}`;
  /** @type {Record<string, string>} */
  const words = {
    waiting: isReady ? sending : kept ? "Kept here. Waits for the connection" : UNSAFE,
    sent: isReady ? sending : "Not confirmed yet: asked again when the connection is back",
    failed: `Not sent. ${problem}`,
  };
  setPart(node, ".stands", words[state]);
  return node;
}
