// Go on here with a session of the machine, and give it back; both are told before.

import { copyButton, h, toast } from "../parts/dom.js";
import { askSheet } from "../parts/sheet.js";
import { oneLine, visibleName } from "../parts/text.js";

const DIFFERENT = [
  "It asks you before it changes or runs anything.",
  "Your own rules, hooks and servers of the terminal are not there.",
  "The model may be another one, where the agent does not say which it had.",
];
const SEEN = "When it goes on at the machine, it stops here by itself.";

/**
 * Say what will be different, then continue; `ends`: a program at the machine is ended.
 *
 * @param {boolean} ends
 * @param {() => unknown} act
 * @param {string} [note] what is different besides; none: the bridge sees when it goes on there
 */
export function askContinue(ends, act, note) {
  const content = [
    h("p", {}, "The bridge runs the agent from here on, with all that was said."),
    h(
      "ul.points",
      {},
      [...DIFFERENT, oneLine(note || SEEN)].map((line) => h("li", {}, line)),
    ),
    ends &&
      h(
        "div.finding.bad",
        {},
        "Its program still runs at the machine and is ended: two writers would lose messages." +
          " What it asks there is refused, what was typed there and not sent is gone.",
      ),
  ];
  const label = ends ? "End the terminal and continue" : "Continue here";
  askSheet("Continue here?", content, label, act, ends ? "primary.danger" : "primary");
}

/**
 * Take a session over; asks again when a program turns out to run it.
 *
 * @param {string} id
 * @param {Model} model
 * @param {boolean} ends
 */
export function continueHere(id, model, ends) {
  const act = async () => {
    try {
      await model.call("resume", id, { take_over: ends ? "end_terminal" : true });
    } catch (/** @type {any} */ error) {
      const isAsked = ["idle", "waiting"].includes(error.details?.status);
      if (error.code === "SESS_AT_THE_DESK" && !ends && isAsked) continueHere(id, model, true);
      else toast(error.message, "warn");
    }
  };
  askContinue(ends, act, model.home.sessions[id]?.continue?.reason);
}

/**
 * Join a session of the desk's: nothing is different for it, so nothing is asked.
 *
 * @param {string} id
 * @param {Model} model
 */
export const joinDesk = (id, model) =>
  model
    .call("resume", id, { take_over: true })
    .catch((/** @type {any} */ error) => toast(error.message, "warn"));

/**
 * Ask whether to give a session back, with what is typed at the machine.
 *
 * @param {Session} session
 * @param {Model} model
 */
export function giveBack({ session_id: id, resume_command: command = "", ...session }, model) {
  const payload = { session_id: id, reason: "user_request", give_back: true };
  const content = [
    h("p", {}, "The agent stops here. Go on at the machine, in ", place(session), ", with"),
    commandOf(command),
    h("p.hint", {}, "Or here again, as long as it does not run there."),
  ];
  askSheet("Give it back?", content, "Give back", () =>
    model.call("ask", "session_end", payload).then(
      () => toast("Given back."),
      (error) => toast(error.message, "warn"),
    ),
  );
}

/** @param {Pick<Session, "working_directory">} _ */
const place = ({ working_directory: path }) => h("strong", {}, visibleName(path));

/**
 * Show a command to be typed at the machine, with a button that copies it.
 *
 * @param {string} command
 */
export const commandOf = (command) =>
  h("div.command", {}, h("pre.wrapped", {}, oneLine(command)), copyButton(command));
