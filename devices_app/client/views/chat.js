// The conversation of one session.

import { fill, h, icon, onFrame, setText, toast } from "../parts/dom.js";
import { diffLines, parseUnified } from "../parts/diff.js";
import { showMarkdown } from "../parts/markdown.js";
import { callLine, clock, duration, oneLine, subject, visible } from "../parts/text.js";
import { WindowedList } from "../parts/window.js";
import { emptyChat, foldChat } from "../store/chat.js";
import { approvalKey } from "../store/approvals.js";

const LOADED = 600; // rows of a session that are read when it is opened
const DRAFT_MS = 400; // a draft is stored so long after the last key
const DAY_MS = 24 * 60 * 60 * 1000;

/** The chat tab of a session. */
export function chatView(id, { model, go }) {
  let rows = [];
  let first = Infinity; // place of the first row that is loaded
  let whole = false; // nothing earlier is kept here
  let asked = false; // the bridge was asked for what is earlier
  let chat = emptyChat();

  const newer = h("button.newer", {
    type: "button",
    hidden: true,
    on: { click: () => list.follow() },
  });
  const list = new WindowedList({
    make: (item) => makeItem(item, { model, go, id }),
    update: updateItem,
    earlier: () => loadEarlier(),
    unread: (count) => {
      newer.hidden = count === 0;
      setText(newer, `${count} new`);
    },
  });
  const waiting = h("ul.outgoing");
  const bottom = composer(id, { model });
  const node = h("section.chat", {}, list.node, newer, waiting, bottom.node);

  const refold = () =>
    (chat = foldChat(
      emptyChat(),
      rows.map(({ row }) => row),
    ));

  const loadEarlier = async () => {
    const before = chat.items.length;
    if (!whole) {
      const found = await model.rowsBefore(id, first, LOADED);
      whole = found.length < LOADED;
      if (found.length) {
        first = found[0].place;
        rows = [...found, ...rows];
        refold();
        list.show(chat.items, Math.max(0, chat.items.length - before));
        return;
      }
    }
    if (asked) return;
    asked = true;
    try {
      await model.call("replay", id, new Date(Date.now() - DAY_MS).toISOString());
    } catch (error) {
      asked = error.code !== undefined; // without a connection it is asked again later
    }
  };

  const live = (fresh) => {
    rows.push(...fresh.map((row) => ({ place: Infinity, row })));
    foldChat(chat, fresh);
    repaint();
  };

  // Rows that belong between those that are loaded: read again what is shown.
  const reload = async () => {
    const count = Math.max(rows.length, LOADED);
    rows = await model.rowsBefore(id, Infinity, count);
    first = rows[0]?.place ?? Infinity;
    whole = rows.length < count;
    refold();
    list.show(chat.items);
  };

  const repaint = onFrame(() => list.show(chat.items));

  const paint = (news) => {
    if (news?.news === "rows" && news.session === id) {
      if (news.earlier) reload();
      else live(news.rows);
    }
    paintOutgoing(waiting, id, model);
    bottom.paint();
  };

  reload().then(() => {
    list.follow();
    if (rows.length < LOADED) loadEarlier();
  });
  paint();
  return {
    node,
    paint,
    close: () => {
      list.close();
      repaint.cancel();
      bottom.close();
    },
  };
}

// What this device has said and the bridge has not taken yet.
function paintOutgoing(place, id, model) {
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

// -- items ------------------------------------------------------------------------------------------

function makeItem(item, app) {
  const node = h(`li.item.${item.kind}`);
  node.app = app;
  updateItem(node, item);
  return node;
}

const updateItem = (node, item) => UPDATES[item.kind](node, item);

const UPDATES = {
  prompt: updatePrompt,
  answer: updateAnswer,
  tool: updateTool,
  note: updateNote,
  gap: updateNote,
};

function updatePrompt(node, item) {
  const from = item.device
    ? `from ${oneLine(item.device)}`
    : item.source === "agent"
      ? "from the agent's history"
      : item.source === "http"
      ? "over HTTP"
      : "at the machine";
  node.replaceChildren(
    h(
      "div.bubble.mine",
      {},
      h("p", {}, visible(item.text)),
      h(
        "p.meta",
        {},
        [item.queued ? "Queued" : "", from, clock(item.at)].filter(Boolean).join(" · "),
      ),
    ),
  );
}

function updateAnswer(node, item) {
  node.body ??= h("div.bubble.markdown");
  node.foot ??= h("p.meta");
  if (!node.body.isConnected) node.replaceChildren(node.body, node.foot);
  showMarkdown(node.body, item.text);
  node.hidden = item.done && !item.text && item.reason !== "error";
  node.classList.toggle("streaming", !item.done);
  const ends = {
    error: "The turn ended with an error.",
    length: "Cut: the answer reached its greatest length.",
  };
  const cost = item.usage ? usage(item.usage) : "";
  setText(node.foot, [ends[item.reason] ?? "", cost].filter(Boolean).join(" "));
  node.foot.hidden = !node.foot.textContent;
}

function usage({
  input_tokens: input,
  output_tokens: output,
  duration_ms: ms,
  cost_usd: cost,
  total_cost_usd: total,
}) {
  const price = cost ?? total;
  return [
    input !== undefined && `${input} in`,
    output !== undefined && `${output} out`,
    duration(ms),
    price !== undefined && `$${Number(price).toFixed(3)}`,
  ]
    .filter(Boolean)
    .join(" · ");
}

function updateTool(node, item) {
  const state = item.done
    ? item.ok
      ? "completed"
      : "error"
    : item.asked && !item.decision
      ? "pending"
      : "running";
  node.dataset.state = state;
  const details =
    node.querySelector("details") ??
    h(
      "details.tool",
      {},
      h("summary", {}, h("span.mark", { "aria-hidden": "true" }), h("span.call"), h("span.meta")),
      h("div.tool-body"),
    );
  if (!details.isConnected) node.replaceChildren(details);
  setText(details.querySelector(".call"), callLine(item.tool, item.params, item.description));
  setText(
    details.querySelector(".meta"),
    [
      WORDS[state],
      item.decision && item.decision !== "approved" ? item.decision : "",
      duration(item.ms),
    ]
      .filter(Boolean)
      .join(" · "),
  );
  details.ontoggle = () =>
    details.open && fillTool(details.querySelector(".tool-body"), item, node.app);
  if (details.open) fillTool(details.querySelector(".tool-body"), item, node.app);
  showDecision(node, item, state);
}

const WORDS = {
  pending: "waits for a decision",
  running: "running",
  completed: "",
  error: "failed",
};

function showDecision(node, item, state) {
  const { model, go, id } = node.app;
  const open =
    state === "pending" && model.home.approvals[approvalKey(id, item.callId)]?.open !== false;
  node.querySelector(".decide")?.remove();
  if (open)
    node.append(
      h(
        "a.button.primary.decide",
        { href: go.to("approval", approvalKey(id, item.callId)), on: { click: go.follow } },
        "Decide",
      ),
    );
}

function fillTool(place, item, { go, id }) {
  if (place.dataset.version === String(item.version)) return;
  place.dataset.version = String(item.version);
  const input = subject(item.params);
  const path = item.params.file_path ?? item.params.path;
  fill(
    place,
    input && h("pre.wrapped", { tabindex: "0", "aria-label": "Input" }, visible(input)),
    typeof path === "string" &&
      h("a.button.quiet", { href: go.to("file", id, path), on: { click: go.follow } }, "Open file"),
    item.decidedBy && h("p.meta", {}, item.decidedBy),
    item.diff && diffLines(parseUnified(item.diff)),
    item.problem && h("p.warn", {}, item.problem),
    item.output.text &&
      h(
        "pre.wrapped",
        { tabindex: "0", "aria-label": "Output" },
        visible(item.output.text),
        item.output.more ? `\n… ${item.output.more} more characters` : "",
      ),
  );
}

function updateNote(node, item) {
  node.dataset.tone = item.tone ?? "soft";
  node.replaceChildren(h("p.note", {}, oneLine(item.text)));
}

// -- composer ---------------------------------------------------------------------------------------

const touch = () => matchMedia("(pointer: coarse)").matches;

function composer(id, { model }) {
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
    await model.keepDraft(id, "");
    await model.call("say", id, text);
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
