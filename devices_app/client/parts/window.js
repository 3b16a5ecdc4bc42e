// Show a long list with at most WINDOW items in the DOM. The text that a person reads stays in its
// place while items above and below come, change or go.

import { h } from "./dom.js";

const WINDOW = 200; // items that stand in the DOM at once
const TAIL = 16; // of them while the list follows its end: more than a screen holds
const STEP = 60;
const NEAR = 600; // pixels from an end at which more is shown
const AT_END = 40;

export class WindowedList {
  /**
   * @param {object} on
   * @param {(item: any) => Element_} on.make
   * @param {(node: Element_, item: any) => void} on.update
   * @param {() => Promise<unknown>} on.earlier load items before the first
   * @param {(unread: number) => void} on.unread how many items below the end of the screen are new
   */
  constructor(on) {
    this.on = on;
    this.list = h("ol.stream");
    this.head = h("div.older"); // stands before the first item
    this.node = h("div.scroller.anchored", { tabindex: "0" }, this.head, this.list);
    /** @type {ChatItem[]} */
    this.items = [];
    this.count = 0;
    this.nodes = new Map();
    this.start = 0;
    this.end = 0;
    this.following = true;
    this.unread = 0;
    this.loading = false;
    this.moved = 0; // where the list itself scrolled to
    /** @type {ReturnType<WindowedList["anchor"]>} */
    this.read = null; // what stands at the top of the screen
    this.node.addEventListener("scroll", () => this.scrolled(), { passive: true });
    // What is decided in the list stays under the finger.
    this.holds = () => this.list.querySelector(".deciding .actions > *") !== null;
    this.resize = new ResizeObserver(([{ target }]) => {
      if (!this.following)
        this.restore(this.read); // a picture above has come, or code has grown
      else if (target === this.node || !this.holds()) this.toEnd();
    });
    for (const node of [this.node, this.head, this.list]) this.resize.observe(node);
  }

  /**
   * Show these items; `prepended` of them are new before the one that is read: `readKey`.
   *
   * @param {ChatItem[]} items
   */
  show(items, prepended = 0, isNews = true) {
    const before = this.count; // the caller may have added to the very list that was shown
    this.items = items;
    this.count = items.length;
    this.start += prepended;
    this.end += prepended;
    const grown = isNews ? items.length - before - prepended : 0;
    const held = this.holds();
    if (this.following) {
      this.end = items.length;
      this.start = Math.max(held ? this.start : 0, this.end - (held ? WINDOW : TAIL));
    }
    if (grown > 0 && (held || !this.following)) this.on.unread((this.unread += grown));
    this.paint();
  }

  paint() {
    const anchor = this.following && !this.holds() ? null : this.anchor();
    const wanted = this.items.slice(this.start, this.end);
    const keys = new Set(wanted.map(({ key }) => key));
    for (const [key, { node }] of this.nodes) {
      if (keys.has(key)) continue;
      node.remove();
      this.nodes.delete(key);
    }
    this.head.hidden = this.start > 0;
    let at = this.list.firstChild;
    for (const item of wanted) {
      let shown = this.nodes.get(item.key);
      if (!shown) {
        shown = { node: this.on.make(item), version: item.version };
        this.nodes.set(item.key, shown);
      } else if (shown.version !== item.version) {
        this.on.update(shown.node, item);
        shown.version = item.version;
      }
      if (shown.node === at) at = shown.node.nextSibling;
      else this.list.insertBefore(shown.node, at);
    }
    if (anchor) this.restore(anchor);
    else if (this.following) this.toEnd();
    this.read = this.anchor();
  }

  /** Return the key of the item at the top of the screen. */
  get readKey() {
    const { node } = this.anchor() ?? {};
    return [...this.nodes].find(([, shown]) => shown.node === node)?.[0];
  }

  /** Tell whether the first item is in sight, or nearly. */
  get atTop() {
    return this.start === 0 && this.node.scrollTop < NEAR;
  }

  toEnd() {
    if (this.unread) this.on.unread((this.unread = 0));
    const { scrollHeight, clientHeight } = this.node;
    this.node.scrollTop = scrollHeight;
    this.moved = this.node.scrollTop;
    if (this.start === 0 || scrollHeight > 2 * clientHeight) return;
    this.start = Math.max(0, this.start - TAIL); // a tall screen, or items that are not seen
    this.paint();
  }

  /** Go to the newest item and follow it from now on. */
  follow() {
    this.following = true;
    this.unread = 0;
    this.on.unread(0);
    this.show(this.items);
    this.toEnd();
  }

  anchor() {
    const top = this.node.getBoundingClientRect().top;
    for (const node of this.list.children) {
      const box = node.getBoundingClientRect();
      const goes = node.classList.contains("between"); // once what it stands for is there
      if (box.bottom > top && !goes) return { node, offset: box.top - top };
    }
    return null;
  }

  /** @param {{ node: Element; offset: number } | null} anchor */
  restore(anchor) {
    if (!anchor?.node.isConnected) return;
    const top = this.node.getBoundingClientRect().top;
    const by = anchor.node.getBoundingClientRect().top - top - anchor.offset;
    this.node.style.overflowY = by ? "hidden" : ""; // Safari drops what is set while a list glides
    this.node.scrollTop += by;
    this.node.style.overflowY = "";
    this.moved = this.node.scrollTop;
  }

  /** Return what is read now, for `goTo`; null at the end. */
  place() {
    const anchor = this.following ? null : this.anchor();
    const key = this.readKey;
    return key && anchor && { key, offset: anchor.offset };
  }

  /**
   * Show a place again; tells whether it is among the items.
   *
   * @param {Mark | null | undefined} place
   */
  goTo(place) {
    const at = place ? this.items.findIndex(({ key }) => key === place.key) : -1;
    if (!place || at < 0) return false;
    this.following = false;
    this.on.unread(0);
    this.start = Math.max(0, at - STEP);
    this.end = Math.min(this.items.length, this.start + WINDOW);
    this.paint();
    this.restore({ node: this.nodes.get(place.key).node, offset: place.offset });
    this.read = this.anchor();
    return true;
  }

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.node;
    this.read = this.anchor();
    const last = this.end === this.items.length;
    const below = scrollHeight - scrollTop - clientHeight;
    if (last && below < AT_END) {
      if (!this.following || this.unread) this.follow();
      return;
    }
    if (this.following && Math.abs(scrollTop - this.moved) > 2) {
      this.following = false;
      this.on.unread(this.unread);
    }
    if (scrollTop < NEAR) this.up();
    else if (below < NEAR && !last) this.down();
  }

  down() {
    this.end = Math.min(this.items.length, this.end + STEP);
    this.start = Math.max(0, this.end - WINDOW);
    this.paint();
  }

  async up() {
    if (this.start > 0) {
      this.start = Math.max(0, this.start - STEP);
      this.end = Math.min(this.items.length, this.start + WINDOW);
      this.paint();
      return;
    }
    if (this.loading) return;
    this.loading = true;
    let came;
    try {
      came = await this.on.earlier();
    } finally {
      this.loading = false;
    }
    // At the very top nothing scrolls any more that would ask again.
    if ((this.start > 0 || came) && this.node.scrollTop < NEAR) this.up();
  }

  close() {
    this.resize.disconnect();
  }
}
