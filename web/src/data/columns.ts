// Columns: a JSON head and typed arrays, read without a copy where the entry is the value. See docs/dashboard.md.

const MAGIC = "WFCOLS1\n";
const TYPES = { i1: Int8Array, i2: Int16Array, i4: Int32Array, f4: Float32Array, f8: Float64Array } as const;

export type Numbers = Int8Array | Int16Array | Int32Array | Float32Array | Float64Array;

interface Column { type: keyof typeof TYPES | "utf8"; at: number; form?: "delta" | "after"; of?: string; strings?: string; bytes_at?: number; bytes?: number }
interface Table { rows: number; columns: Record<string, Column> }
interface Head { format: string; version: number; about: Record<string, unknown>; strings: Record<string, string[]>; tables: Record<string, Table> }

/** Something that a reader of the page is told in one sentence, instead of a view. */
export class Trouble extends Error {}

export class Columns {
  private constructor(private readonly head: Head, private readonly buffer: ArrayBuffer, private readonly body: number) {}

  static read(buffer: ArrayBuffer): Columns {
    const bytes = new Uint8Array(buffer, 0, Math.min(16, buffer.byteLength));
    if (bytes.length < 16 || String.fromCharCode(...bytes.subarray(0, 8)) !== MAGIC) {
      throw new Trouble("This is not a run that wattflow wrote: its first bytes are another format's.");
    }
    const length = new DataView(buffer).getUint32(8, true);
    if (16 + length > buffer.byteLength) throw new Trouble("The run is cut short: its head is not whole. Save or load it again.");
    let head: Head;
    try {
      head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 16, length))) as Head;
    } catch {
      throw new Trouble("The run is broken: its head is no JSON. Save or load it again.");
    }
    if (head.format !== "wattflow-columns") throw new Trouble("This is not a run that wattflow wrote: its head names another format.");
    if (!(head.version <= 1)) throw new Trouble(`The run has format ${String(head.version)}, and this page reads format 1: update wattflow.`);
    return new Columns(head, buffer, 16 + length);
  }

  get about(): Record<string, unknown> { return this.head.about; }
  strings(name: string): string[] { return this.head.strings[name] ?? []; }
  rows(table: string): number { return this.head.tables[table]?.rows ?? 0; }
  has(table: string, column: string): boolean { return this.head.tables[table]?.columns[column] !== undefined; }

  /** A column's values; `missing` in every row where the column was left out. */
  numbers(table: string, name: string, missing: number): Numbers {
    const rows = this.rows(table), column = this.head.tables[table]?.columns[name];
    if (!column || column.type === "utf8") return new Float64Array(rows).fill(missing);
    const entries = this.array(column.type, column.at, rows, `${table}.${name}`);
    if (column.form === undefined) return entries;
    const values = new Float64Array(rows);
    if (column.form === "delta") for (let i = 0, sum = 0; i < rows; i++) values[i] = sum += entries[i];
    else {
      const base = this.numbers(table, column.of ?? "", 0);
      for (let i = 0; i < rows; i++) values[i] = base[i] + entries[i];
    }
    return values;
  }

  /** A column of text, as a function: a million names are made only when they are shown. */
  text(table: string, name: string): (row: number) => string {
    const column = this.head.tables[table]?.columns[name], rows = this.rows(table);
    if (!column || column.type !== "utf8") return () => "";
    const start = this.body + column.at, from = this.body + (column.bytes_at ?? 0), size = column.bytes ?? 0;
    this.within(start, 4 * (rows + 1), `${table}.${name}`);
    this.within(from, size, `${table}.${name}`);
    const offsets = new Uint32Array(this.buffer, start, rows + 1), decoder = new TextDecoder();
    return (row) => (row < 0 || row >= rows ? "" : decoder.decode(new Uint8Array(this.buffer, from + offsets[row], offsets[row + 1] - offsets[row])));
  }

  private array(type: keyof typeof TYPES, at: number, rows: number, name: string): Numbers {
    const Kind = TYPES[type];
    if (!Kind) throw new Trouble(`The run is broken: column ${name} has the unknown type ${String(type)}.`);
    this.within(this.body + at, rows * Kind.BYTES_PER_ELEMENT, name);
    return new Kind(this.buffer, this.body + at, rows);
  }

  private within(start: number, size: number, name: string): void {
    if (!(start % 4 === 0 || size === 0) || start < this.body || start + size > this.buffer.byteLength) {
      throw new Trouble(`The run is cut short: column ${name} lies beyond its end. Save or load it again.`);
    }
  }
}
