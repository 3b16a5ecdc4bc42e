// Take a person's messages to an agent: the field, the waiting messages, stop and resume.

import { button, fill, form, h, icon, keyed, setPart, setText, toast } from "../parts/dom.js";
import { twoSteps } from "../parts/sheet.js";
import { bytes, counted, oneLine } from "../parts/text.js";
import { filesLeft } from "../store/outbox.js";
import { clipFor, wordsOf } from "./clip.js";
import { keepDraft, keepTyped } from "./drafts.js";

/** @type {Record<string, string>} */
const STANDS = {
  observed: "This agent runs at the machine; it can be watched here, not spoken to.",
  ended: "This session has ended.",
  given: "Given back. It goes on at the machine with the command below, or here.",
  paused: "Paused. Your next message resumes it.",
  closed: "Closed, but the agent remembers it.",
};
const UNSAFE = "Waits for the connection, on this page only";

/**
 * Make the foot of a conversation: waiting messages, the field, stop and resume.
 *
 * @param {string} id
 * @param {App} app
 * @param {() => void} sent
 */
export function composer(id, app, sent) {
  const { model } = app;
  const area = h("textarea", {
    rows: "1",
    "aria-label": "Message to the agent",
    placeholder: "Message",
    enterkeyhint: matchMedia("(pointer: coarse)").matches ? "enter" : "send",
  });
  const clip = clipFor(area, () => grow());
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
  const line = form("composer", () => say(), ...clip.parts, grown, stop, delay, send);
  const waiting = h("ul.outgoing");
  const node = h("div.foot", {}, waiting, why, how, command, take, rest, back, clip.place, line);

  keepTyped(area, model, id).then(() => {
    paint();
    clip.takeShared(app).then((shared) => shared && edit(shared));
  });

  // Loaded with the first `/` or `@`.
  let completes = false;
  const complete = async () => {
    if (completes || !/(^|\s)[/@]/.test(area.value)) return;
    completes = true;
    try {
      const { completing } = await import("./completing.js");
      line.before(completing(area, id, model));
    } catch {
      completes = false; // offline: `paint` tries again
    }
  };

  const grow = () => {
    grown.dataset.text = area.value;
    const isReady = clip.isReady && Boolean(area.value.trim() || clip.files.length);
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
    const { files } = clip;
    clip.clear();
    area.value = "";
    grow();
    try {
      await model.call("say", id, wordsOf(text, files), more, files);
      keep();
      sent();
    } catch (/** @type {any} */ error) {
      edit(text);
      clip.put(files);
      toast(error.message, "warn");
    }
  };

  const keep = () => keepDraft(model, id, area.value);

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
    const { continueHere, joinDesk } = await sheets();
    if (model.home.sessions[id]?.continue?.how === "join") return joinDesk(id, model);
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
    if (model.connection.phase === "ready") complete();
    paintOutgoing(waiting, id, model);
    const session = model.home.sessions[id];
    const observed = session?.kind === "observed";
    const status = session?.session_status;
    const ended = status === "closed" && !session?.resumable;
    clip.place.hidden = line.hidden = observed || (ended && !area.value);
    stop.hidden = status !== "created" && (session?.turn ?? "idle") === "idle";
    rest.hidden =
      observed ||
      !(status === "paused" || status === "error" || (status === "closed" && session?.resumable));
    const way = session?.continue; // what can be answered is answered on its card
    take.hidden = way?.how !== "take_over" && !(observed && way?.how === "join");
    setText(how, observed && way?.how === null ? oneLine(way.reason) : "");
    how.hidden = !how.textContent;
    const given = observed && status === "paused" && session?.resume_command;
    if (given && !command.firstChild)
      sheets().then(({ commandOf }) => fill(command, commandOf(given)));
    command.hidden = !given;
    back.hidden =
      session?.shared ||
      observed ||
      !session?.resume_command ||
      !["active", "paused"].includes(status ?? "");
    const state = given ? "given" : ended ? "ended" : observed ? "observed" : status;
    setText(why, state === "error" ? oneLine(session.trouble) : (STANDS[state] ?? ""));
    why.hidden = !why.textContent;
  };
  /** @param {string} text @param {Attached[]} before */
  const edit = (text, before = []) => {
    clip.putBefore(before);
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
