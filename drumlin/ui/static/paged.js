/** Lists that the coordinator tells a page at a time. */

/**
 * The first page is asked for again and again while it is alone. Whoever asks for more reads on after it; what is read then
 * stays as it was, so no row moves under the reader's eyes.
 */
export class Paged {
  /** @param {(after: string) => Promise<{rows: any[], next: string}>} ask */
  constructor(ask) {
    this.ask = ask;
    /** @type {any[]} */
    this.rows = [];
    this.next = "";
    this.alone = true;
  }

  async look() {
    if (!this.alone) return;
    const { rows, next } = await this.ask("");
    if (this.alone) Object.assign(this, { rows, next });
  }

  async more() {
    this.alone = false;
    const { rows, next } = await this.ask(this.next);
    Object.assign(this, { rows: [...this.rows, ...rows], next });
  }
}
