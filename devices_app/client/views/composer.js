// What a person says to an agent: what waits to be sent, the field, stop and resume.

import { h, icon, setText, toast } from "../parts/dom.js";
import { oneLine } from "../parts/text.js";

const DRAFT_MS = 400; // a draft is stored so long after the last key

/** Show what this device has said and the bridge has not taken yet. */
export function paintOutgoing(place, id, model) {
  const items = model.outbox.filter(
    ({ message }) => message.type === "message" && message.payload.session_id === id,
  );
  place.hidden = items.length === 0;
  place.replaceChildren(
    ...items.map(({ message, state, problem }) =>
      h(
        `li.bubble.mine.${state}`,
        {},
        h("p", {}, message.payload.content),
        h(
          "p.meta",
          {},
          { waiting: "Waits for the connection", sent: "Sending…", failed: `Not sent. ${problem}` }[
            state
          ],
        ),
        state === "failed" &&
          h(
            "div.actions",
            {},
            h(
              "button",
              { type: "button", on: { click: () => model.call("retry", message.id) } },
              "Try again",
            ),
            h(
              "button.quiet",
              { type: "button", on: { click: () => model.call("discard", message.id) } },
              "Discard",
            ),
          ),
      ),
    ),
  );
}

const touch = () => matchMedia("(pointer: coarse)").matches;

/** The foot of a conversation. */
export function composer(id, { model }) {
  const area = h("textarea", {
    rows: "1",
    "aria-label": "Message to the agent",
    placeholder: "Message",
    enterkeyhint: touch() ? "enter" : "send",
  });
  const grown = h("div.grow", {}, area); // as high as its text, which the stylesheet repeats unseen
  const send = h("button.round.primary", { type: "submit", "aria-label": "Send" }, icon("send"));
  const stop = h(
    "button.round.danger",
    {
      type: "button",
      "aria-label": "Stop the agent",
      hidden: true,
      on: { click: () => interrupt() },
    },
    icon("stop"),
  );
  const why = h("p.why", { role: "status" });
  const resume = h(
    "button",
    { type: "button", hidden: true, on: { click: () => wake() } },
    "Resume",
  );
  const form = h(
    "form.composer",
    {
      on: {
        submit: (event) => {
          event.preventDefault();
          say();
        },
      },
    },
    grown,
    stop,
    send,
  );
  const node = h("div.foot", {}, why, resume, form);
  let keeping = 0;

  model.draft(id).then((text) => {
    if (text && !area.value) area.value = text;
    grow();
  });

  const grow = () => {
    grown.dataset.text = area.value;
    send.disabled = !area.value.trim();
  };

  const say = async () => {
    const text = area.value.trim();
    if (!text) return;
    area.value = "";
    grow();
    clearTimeout(keeping);
    try {
      await model.call("say", id, text);
      await model.keepDraft(id, area.value);
    } catch (error) {
      area.value = [text, area.value].filter(Boolean).join("\n");
      grow();
      toast(error.message, "warn");
    }
  };

  const interrupt = () =>
    model.call("send", "session_interrupt", { session_id: id }).then(
      () => toast("Stopping…"),
      (error) => toast(error.message, "warn"),
    );

  const wake = async () => {
    resume.disabled = true;
    try {
      await model.call("resume", id);
    } catch (error) {
      toast(error.message, "warn");
    } finally {
      resume.disabled = false;
    }
  };

  area.addEventListener("input", () => {
    grow();
    clearTimeout(keeping);
    keeping = setTimeout(() => model.keepDraft(id, area.value), DRAFT_MS);
  });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      say();
    }
  });

  const paint = () => {
    const session = model.home.sessions[id];
    const observed = session?.kind === "observed";
    const status = session?.session_status;
    const ended = status === "closed" && !session?.resumable;
    form.hidden = observed || ended;
    stop.hidden = session?.turn !== "working" && session?.turn !== "waiting";
    resume.hidden =
      observed ||
      !(status === "paused" || status === "error" || (status === "closed" && session?.resumable));
    setText(
      why,
      observed
        ? "This agent runs at the machine; it can be watched here, not spoken to."
        : ended
          ? "This session has ended."
          : status === "error" && session?.trouble
            ? oneLine(session.trouble)
            : status === "paused"
              ? "Paused. Your next message resumes it."
              : status === "closed"
                ? "Closed, but the agent remembers it."
                : "",
    );
    why.hidden = !why.textContent;
  };
  grow();
  return {
    node,
    paint,
    close: () => {
      clearTimeout(keeping);
      if (area.value) model.keepDraft(id, area.value);
    },
  };
}
