// What the modules share. Only the type checker reads it; it is not served.

type Free = Wire.Free;
type Lost = { name: string; at: string }; // a device whose data the browser deleted
type Model = import("./net/model.js").Model;
type Engine = import("./net/engine.js").Engine;
/** An element, with what its kind has and the properties that some views keep on theirs. */
type Element_ = HTMLElement & Record<string, any>;
/** What may stand in an element: nodes, texts, lists of them; null and false are left out. */
type Child = Node | string | number | boolean | null | undefined | Child[];

// -- the state

type Decision = Wire.Requests["approval_response"]["decision"];
type Risk = Wire.Payloads["approval_required"]["risk_level"];

interface Session extends Omit<Wire.SessionInfo, "kind" | "continue" | "asks"> {
  kind: Wire.SessionInfo["kind"] | "";
  working_directory: string;
  unseen: boolean;
  failed: boolean;
  trouble: string;
  /** most of its context was used at some time; absent in what an older page has stored */
  filled?: boolean;
  asks?: boolean | null;
  /** absent in what an older page has stored */
  continue?: Wire.Continue;
  resume_command?: string;
  branch?: string;
  created_at?: string;
  /** what its agent offered last */
  options?: Wire.SessionOption[];
  commands?: Wire.SessionCommand[];
}
/** What a message says of a session. */
type SessionNews = Partial<Omit<Session, "session_id">> & { session_id: string };

interface Approval {
  key: string;
  row_id: string;
  session_id: string;
  tool_call_id: string;
  tool: string;
  params: Free;
  exact?: string;
  description: string;
  risk_level: Risk;
  source: Wire.Payloads["approval_required"]["source"];
  reasoning: string;
  agent: Wire.SubAgent | null;
  rewritten: boolean;
  /** absent in what an older page has stored */
  options?: Wire.ApprovalOption[];
  remember?: Wire.RuleOffer[];
  /** absent in what an older page has stored */
  answerable?: boolean;
  /** absent in what an older page has stored */
  outcome?: Wire.Payloads["approval_required"]["outcome"] | "";
  at: string;
  open: boolean;
  decision: Decision | "";
  by: string;
  decided_at: string;
  forwarded: boolean | null;
  changed: Free | null;
  /** what this device has decided too late */
  late?: Decision;
}
/** What a message says of a decision. */
interface Decided {
  session_id: string;
  tool_call_id: string;
  decision?: Decision;
  decided_at?: string;
  decided_by?: string;
  device?: string;
  forwarded?: boolean;
  modifications?: Free | null;
  outcome?: Wire.Payloads["approval_required"]["outcome"];
  why?: string;
}
interface Home {
  device: string;
  presence: Wire.Presence | null;
  sessions: Record<string, Session>;
  approvals: Record<string, Approval>;
}
type Fold<T extends keyof Wire.Payloads> = (
  home: Home,
  message: Wire.Envelope<T>,
  viewing: string | null,
) => Home;
type Reducers = { [T in keyof Wire.Payloads]?: Fold<T> };

// -- the storage

/** What is thrown: an Error, mostly one of the bridge's. */
type Failure = Error & { code?: string; details?: Free };
interface Store {
  lasting: boolean;
  trouble: string;
  get(name: string): Promise<any>;
  set(name: string, value: unknown, how?: { durability?: string; beside?: Free }): Promise<void>;
  addRows(groups: Group[], home: (fresh: Fresh[]) => Home): Promise<Fresh[]>;
  rowsBefore(session: string, place: number, count: number): Promise<Placed[]>;
  abort(what?: { reading?: boolean }): void;
  wipe(): Promise<void>;
}

// -- messages

/** A message to the bridge. */
interface Sent<T extends keyof Wire.Requests> {
  type: T;
  id: string;
  timestamp: string;
  payload: Wire.Requests[T];
}
/** Says that what came before is not kept, or not here and to be loaded. */
interface Gap {
  type: "gap";
  id: string;
  timestamp: string;
  payload: { session_id: string; older?: boolean };
}
type Row = Extract<Wire.Message, { type: Wire.Row }> | Gap;
/** A row and its place among those of its session. */
interface Placed {
  place: number;
  row: Row;
}
interface Group {
  session: string;
  rows: Row[];
  /** a row that is kept, the last of these: what was missing right before it came */
  before?: string;
}
type Fresh = Group & { earlier: boolean };
/** A message that cannot be shown. */
interface Strange {
  problem: string;
  type: string;
  text: string;
}
/** A block of Markdown; `lines` and `items` are blocks again, but those of a paragraph or table. */
interface Block {
  type: "code" | "heading" | "list" | "p" | "quote" | "rule" | "table";
  source: string;
  lines?: string[];
  items?: string[][];
  text?: string;
  level?: number;
  /** the first number of a list that has numbers */
  start?: number;
}
// -- the connection

type Phase =
  | "off"
  | "connecting"
  | "authenticating"
  | "keeping"
  | "checking"
  | "warned"
  | "ready"
  | "waiting"
  | "stopped";
type Fault = Pick<Wire.Payloads["connection_error"], "code" | "message" | "remediation">;
interface State {
  phase: Phase;
  attempt: number;
  neverOpened: number;
  tokens: string[];
  deviceId: string;
  acked: Wire.Payloads["connection_ack"] | null;
  health: Wire.Payloads["health_status"] | null;
  fault: Fault | null;
  patience: number;
  fresh: string;
}
type Clock = "connect" | "ping" | "pong" | "retry";
type Happening =
  | { kind: "start" | "stop" | "opened" | "closed" | "wake" | "accept" }
  | { kind: "timer"; name: Clock }
  | { kind: "message"; message: Wire.Message }
  | { kind: "kept"; safe: boolean };
type Effect =
  | { do: "open" | "close" | "ready" }
  | { do: "send"; message: Sent<keyof Wire.Requests> }
  | { do: "timer"; name: Clock; ms: number }
  | { do: "cancel"; name: Clock }
  | { do: "keep"; tokens: string[] }
  | { do: "deliver"; message: Wire.Message };
type Stepped = [State, Effect[]];
type Step<K extends Happening["kind"]> = (
  state: State,
  event: Extract<Happening, { kind: K }>,
) => Stepped;
type Connection = Pick<State, "phase"> &
  Partial<Pick<State, "attempt" | "neverOpened" | "fault" | "acked" | "health">>;
interface Identity {
  url: string;
  pin: string;
  tokens: string[];
  deviceId: string;
  paired: string;
}

// -- the outbox, and what the tabs tell each other

type Said = Sent<"message"> | Sent<"approval_response">;
/** A file that goes with a message; `attachment_id` is empty until the bridge has it. */
interface Carried {
  id: string;
  name: string;
  size: number;
  attachment_id: string;
}
/** One with its bytes; null for one that the bridge has. */
type Attaching = Carried & { blob: Blob | null };
interface Item {
  message: Said;
  /** absent where it has none */
  files?: Carried[];
  /** waiting, sent, failed */
  state: string;
  /** whether it is stored on this device */
  kept: boolean;
  /** when the person did it, ms since 1970 */
  made: number;
  /** when it was first sent, or 0 */
  first: number;
  /** number of the connection on which it was made or sent; 0: none */
  connection: number;
  /** why it failed, in words */
  problem: string;
}
interface Problem {
  at: string;
  what: string;
  detail: string;
}
interface Snapshot {
  home: Home;
  outbox: Item[];
  connection: Connection;
  problems: Problem[];
}
interface News extends Partial<Snapshot> {
  news: "snapshot" | "home" | "outbox" | "connection" | "problems" | "rows" | "trouble" | "gone";
  /** with rows */
  session?: string;
  rows?: Row[];
  earlier?: boolean;
  /** with trouble */
  text?: string;
  /** whose decision here came too late */
  late?: Approval;
}
type Tell = (news: News) => unknown;
/** How a session is begun, beside its agent and directory. */
type More = Pick<Wire.Requests["session_start"], "worktree" | "trust">;
/** When a message goes to its agent. */
type When = Pick<Wire.Requests["message"], "when" | "not_before">;
/** An agent, as far as a list of them needs it. */
type AgentEntry = Pick<Wire.AgentInfo, "name" | "can_start" | "version" | "reason" | "history"> &
  Partial<Pick<Wire.AgentInfo, "steers">>;
/** What a tab asks of the one that leads. */
interface Commands {
  snapshot(): Snapshot & { isInFront: boolean };
  view(tab: string, session: string | null): void;
  say(session: string, content: string, more?: When, files?: Attaching[]): Promise<string>;
  decide(
    key: string,
    decision: Decision,
    modifications?: string | null,
    more?: Free,
  ): Promise<void>;
  withdraw(key: string): boolean;
  retry(id: string): Promise<void>;
  discard(id: string): void;
  ask(type: keyof Wire.Replies, payload: Free): Promise<any>;
  send(type: keyof Wire.Requests, payload: Free): void;
  resume(session: string, how?: Free): Promise<string>;
  startSession(
    session: string,
    agent: string,
    directory: string,
    content: string,
    more?: More,
    files?: Attaching[],
  ): Promise<void>;
  older(session: string, anchor?: Row): Promise<boolean>;
  attachment(session: string, id: string): Promise<Blob>;
  http(path: string): Promise<any>;
  accept(): void;
  connect(): void;
}
/** A request of the engine. */
interface Waiting {
  resolve(message: Wire.Message): void;
  reject(error: Error): void;
  anchor?: Row;
}
/** A command that was given to the tab that leads. */
interface Asked {
  resolve(result: unknown): void;
  reject(error: Error): void;
  taken(): void;
  lost(): void;
  timer: number;
}
interface Served {
  worker: "unknown" | "kept" | "refused" | "absent";
  trouble: string;
  newer: boolean;
  reached: boolean | null;
  skew: number | null;
}
type Detail = "quiet" | "full";

// -- a conversation

/** A picture by its first bytes. */
interface Picture {
  type: string;
  width: number;
  height: number;
}
/** A picture or file that the bridge keeps. */
interface Attached {
  attachment_id: string;
  name: string;
  /** as the bridge says; what is shown is read from the bytes */
  type: string;
  size: number;
  given?: "picture" | "file" | null;
  reason?: string;
}
interface Talk {
  key: string;
  version: number;
  kind: "prompt" | "answer" | "tool" | "note" | "gap" | "made";
  at: string;
  text: string;
  attached?: Attached[];
}
interface Prompt extends Talk {
  kind: "prompt";
  device: string;
  source: string;
  /** bridge, queued, given, withdrawn, refused; empty: not known */
  state: string;
  /** what it waits for, or empty */
  until: string;
}
interface Answer extends Talk {
  kind: "answer";
  done: boolean;
  reason: string;
  usage: Free | null;
}
/** What the agent's own program wrote, as a notice. */
interface Made extends Talk {
  kind: "made";
}
interface Tool extends Omit<Talk, "text"> {
  kind: "tool";
  agent: Wire.SubAgent | null;
  rewritten: boolean;
  rule: string;
  tool: string;
  callId: string;
  params: Free;
  description: string;
  asked: boolean;
  atMachine: boolean;
  noted: string;
  noResult?: boolean;
  decidedBy?: string;
  reason: string;
  decision: Decision | "";
  was: Free | null;
  done: boolean;
  ok: boolean;
  output: string;
  diff: string;
  problem: string;
  ms: number | null;
  /** of the plan or tasks that the call is a card of */
  steps?: PlanStep[];
  /** of the subagent that it has started */
  calls?: Tool[];
  /** what started the subagent whose call it is */
  row?: Tool;
  /** its subagent works on after its result */
  background?: boolean;
}
/** What messages say of a call. */
interface ToolNews {
  tool_call_id: string;
  tool: string;
  params?: Free;
  description?: string;
  agent?: Wire.SubAgent;
  rule?: Wire.RuleUse;
}
interface PlanStep {
  text: string;
  status: string;
}
interface Note extends Talk {
  kind: "note" | "gap";
  tone: string;
  /** the row before which rows are to be loaded */
  before?: string | false;
}
type ChatItem = Prompt | Answer | Tool | Note | Made;
interface Chat {
  items: ChatItem[];
  /** of the kind that the key begins with */
  byKey: Map<string, any>;
  seen: Set<string>;
  queued: Prompt[];
  /** message → its state, which may come before its row */
  states: Map<string, string>;
  /** subagent, or "tasks" → the card of its plan in this turn */
  plans: Map<string, Tool>;
  /** the agent's id of a task → what is known of it */
  tasks: Map<string, Free>;
  /** subagent → the call that has started it */
  subagents: Map<string, Tool>;
}
type Of<T extends Row["type"]> = Extract<Row, { type: T }>;
type Folds = { [T in Row["type"]]?: (chat: Chat, row: Of<T>) => unknown };

// -- views

interface Keyed<T> {
  key(item: T): string;
  make(item: T): Element_;
  update?(node: Element_, item: T): unknown;
}
/** Where a person reads a list: an item, and how far its top is from the list's. */
interface Mark {
  key: string;
  offset: number;
}
interface Listed {
  session: Session;
  state: string;
}
/** What an item of a conversation needs. */
interface ItemApp {
  model: Model;
  go: Go;
  id: string;
  between(row: string): Promise<void>;
  edit(text: string, attached?: Attached[]): void;
}
interface Finding {
  tone: string;
  text: string;
  detail?: string;
  steps?: Child[];
  newer?: boolean;
  pair?: boolean;
}

interface Go {
  to(name: ScreenName, ...values: string[]): string;
  link(name: ScreenName, ...values: string[]): { href: string; on: object };
  open(name: ScreenName, ...values: string[]): void;
}
interface Shared {
  text: string;
  files: File[];
}
interface App {
  model: Model;
  go: Go;
  places: Map<string, number>;
  offer: (Event & { prompt(): void }) | null;
  /** what another app has shared, on its way to the screen that was chosen for it */
  shared: Shared | null;
  pairAgain(): void;
}
type ScreenName =
  | "home"
  | "approvals"
  | "approval"
  | "new"
  | "found"
  | "search"
  | "share"
  | "settings"
  | "wrong"
  | "session"
  | "file";
interface At {
  name: string;
  approval?: string;
  id: string;
  tab: string;
  path: string;
}
interface View {
  node: Element_;
  paint(news?: News[]): void;
  close?(): void;
  /** The agent works in another directory now. */
  moved?(): unknown;
}
type DiffText = Pick<Wire.DiffLine, "type" | "content">;
/** Lines that are shown, and where the first of them stands in its file, if that is known. */
interface Lines {
  path: string;
  lines: DiffText[];
  start?: { old: number; new: number };
  /** of a file, not of a difference */
  file?: boolean;
}
/** How a language is coloured: what begins a comment, quotes, texts of several lines, keywords. */
interface Language {
  line?: string;
  block?: string[];
  quotes?: string;
  long?: string[];
  words: string;
}
type Token = ["comment" | "text" | "number" | "word", number, number];
/** A line of code, and where in a text node it begins; without a node it is only read. */
interface CodeLine {
  node: Text | null | undefined;
  from?: number;
  text: string;
  type: DiffText["type"];
}
/** What a person says of some lines. */
interface Word {
  path: string;
  side: "old" | "new";
  file: boolean;
  /** numbers of lines on that side; 0: not known */
  first: number;
  last: number;
  /** the lines, each behind its sign */
  lines: string[];
  text: string;
}
type Ask = <T extends keyof Wire.Replies>(
  type: T,
  payload: Omit<Wire.Requests[T], "session_id">,
) => Promise<Wire.Payloads[Wire.Replies[T]]>;
