// All that a plugin in AssemblyScript needs (docs/abi.md):
//
//   npx asc NAME.ts -O3 --runtime stub --use abort= -o NAME.wasm        (assemblyscript 0.28)
//
// Nothing is ever freed (--runtime stub): every call starts from the state that initialisation left, so what a call allocates is gone with it.

@external("caponier_v1", "input_len") declare function input_len(): u32;
@external("caponier_v1", "input_read") declare function input_read(ptr: usize, len: u32): u32;
@external("caponier_v1", "output_write") declare function output_write(ptr: usize, len: u32): u32;
@external("caponier_v1", "resp_len") declare function resp_len(): u32;
@external("caponier_v1", "resp_read") declare function resp_read(ptr: usize, len: u32): u32;
@external("caponier_v1", "log") declare function log_line(level: i32, ptr: usize, len: u32): void;
@external("caponier_v1", "progress") declare function progress_note(ptr: usize, len: u32): void;

// What caponier_v1_call returns.
export const OK: i32 = 0, ERROR: i32 = 1, BAD_INPUT: i32 = 2;

// Statuses of operations.
export const enum Status { OK, FAILED, REFUSED, UNKNOWN, BAD_REQUEST, PENDING, PLANNED }

// Levels of log.
export const enum Level { DEBUG = -4, INFO = 0, WARN = 4, ERROR = 8 }

// Response is what an operation was answered with; its JSON is that of the operation, or of the error.
export class Response {
  constructor(public status: u32, public json: Json) {}
  get ok(): bool { return this.status == Status.OK || this.planned; }
  // planned: success that did not happen, since the call is only planned (with "minor":2 in the description). Go on as after ok, and check nothing.
  get planned(): bool { return this.status == Status.PLANNED; }
  get pending(): bool { return this.status == Status.PENDING; } // of ask: return from the call

  // code and message say what went wrong, in words that a tool may pass on.
  get code(): string {
    return this.status == Status.REFUSED ? "refused" : this.status == Status.BAD_REQUEST ? "bad_request" : this.json.get("code").text();
  }
  get message(): string {
    return this.status == Status.REFUSED ? this.json.get("deny").at(0).get("msg").text() : this.json.get("message").text();
  }
}

// Operations: each takes its request as JSON. The compiler keeps only those that are called: they
// are what plugins.lock lists. go generate ./abi writes the next lines.
@external("caponier_v1", "ask") declare function import_ask(ptr: usize, len: u32): u32;
export function ask(request: string): Response { const b = bytes(request); return answer(import_ask(changetype<usize>(b), b.byteLength)); }
@external("caponier_v1", "blob_read") declare function import_blob_read(ptr: usize, len: u32): u32;
export function blobRead(request: string): Response { const b = bytes(request); return answer(import_blob_read(changetype<usize>(b), b.byteLength)); }
@external("caponier_v1", "blob_write") declare function import_blob_write(ptr: usize, len: u32): u32;
export function blobWrite(request: string): Response { const b = bytes(request); return answer(import_blob_write(changetype<usize>(b), b.byteLength)); }
@external("caponier_v1", "http_request") declare function import_http_request(ptr: usize, len: u32): u32;
export function httpRequest(request: string): Response { const b = bytes(request); return answer(import_http_request(changetype<usize>(b), b.byteLength)); }
@external("caponier_v1", "list_commands") declare function import_list_commands(ptr: usize, len: u32): u32;
export function listCommands(request: string): Response { const b = bytes(request); return answer(import_list_commands(changetype<usize>(b), b.byteLength)); }
@external("caponier_v1", "sftp_get") declare function import_sftp_get(ptr: usize, len: u32): u32;
export function sftpGet(request: string): Response { const b = bytes(request); return answer(import_sftp_get(changetype<usize>(b), b.byteLength)); }
@external("caponier_v1", "sftp_list") declare function import_sftp_list(ptr: usize, len: u32): u32;
export function sftpList(request: string): Response { const b = bytes(request); return answer(import_sftp_list(changetype<usize>(b), b.byteLength)); }
@external("caponier_v1", "sftp_put") declare function import_sftp_put(ptr: usize, len: u32): u32;
export function sftpPut(request: string): Response { const b = bytes(request); return answer(import_sftp_put(changetype<usize>(b), b.byteLength)); }
@external("caponier_v1", "sftp_read") declare function import_sftp_read(ptr: usize, len: u32): u32;
export function sftpRead(request: string): Response { const b = bytes(request); return answer(import_sftp_read(changetype<usize>(b), b.byteLength)); }
@external("caponier_v1", "sftp_remove") declare function import_sftp_remove(ptr: usize, len: u32): u32;
export function sftpRemove(request: string): Response { const b = bytes(request); return answer(import_sftp_remove(changetype<usize>(b), b.byteLength)); }
@external("caponier_v1", "sftp_stat") declare function import_sftp_stat(ptr: usize, len: u32): u32;
export function sftpStat(request: string): Response { const b = bytes(request); return answer(import_sftp_stat(changetype<usize>(b), b.byteLength)); }
@external("caponier_v1", "sftp_write") declare function import_sftp_write(ptr: usize, len: u32): u32;
export function sftpWrite(request: string): Response { const b = bytes(request); return answer(import_sftp_write(changetype<usize>(b), b.byteLength)); }
@external("caponier_v1", "snapshots") declare function import_snapshots(ptr: usize, len: u32): u32;
export function snapshots(request: string): Response { const b = bytes(request); return answer(import_snapshots(changetype<usize>(b), b.byteLength)); }
@external("caponier_v1", "ssh_exec") declare function import_ssh_exec(ptr: usize, len: u32): u32;
export function sshExec(request: string): Response { const b = bytes(request); return answer(import_ssh_exec(changetype<usize>(b), b.byteLength)); }
@external("caponier_v1", "ssh_script") declare function import_ssh_script(ptr: usize, len: u32): u32;
export function sshScript(request: string): Response { const b = bytes(request); return answer(import_ssh_script(changetype<usize>(b), b.byteLength)); }
@external("caponier_v1", "stage") declare function import_stage(ptr: usize, len: u32): u32;
export function stage(request: string): Response { const b = bytes(request); return answer(import_stage(changetype<usize>(b), b.byteLength)); }
@external("caponier_v1", "undo_steps") declare function import_undo_steps(ptr: usize, len: u32): u32;
export function undoSteps(request: string): Response { const b = bytes(request); return answer(import_undo_steps(changetype<usize>(b), b.byteLength)); }
// Written by hand again.

function bytes(text: string): ArrayBuffer { return String.UTF8.encode(text); }

function answer(status: u32): Response {
  const b = new ArrayBuffer(resp_len());
  resp_read(changetype<usize>(b), b.byteLength);
  return new Response(status, new Json(String.UTF8.decode(b)));
}

export function log(level: i32, line: string): void { const b = bytes(line); log_line(level, changetype<usize>(b), b.byteLength); }
export function progress(json: string): void { const b = bytes(json); progress_note(changetype<usize>(b), b.byteLength); }
export function output(json: string): void { const b = bytes(json); output_write(changetype<usize>(b), b.byteLength); }

// Input is what the call is about.
export class Input {
  json: Json;
  constructor() {
    const b = new ArrayBuffer(input_len());
    input_read(changetype<usize>(b), b.byteLength);
    this.json = new Json(String.UTF8.decode(b));
  }
  get name(): string { return this.json.get("name").text(); }
  get args(): Json { return this.json.get("args"); }

  // node is the name of the default node.
  get node(): string {
    const nodes = this.json.get("nodes");
    for (let i = 0; nodes.at(i).there; i++) if (nodes.at(i).get("default").raw == "true") return nodes.at(i).get("name").text();
    return "";
  }
}

// done ends a call well; fail ends one with an error for programs and people.
export function done(structured: string, text: string = ""): i32 {
  output('{"content":' + (text == "" ? "[]" : '[{"type":"text","text":' + quote(text) + "}]") + ',"structured":' + structured + "}");
  return OK;
}
export function fail(returns: i32, code: string, message: string, suggestion: string = ""): i32 {
  output('{"content":[],"error":{"code":' + quote(code) + ',"message":' + quote(message) + (suggestion == "" ? "" : ',"suggestion":' + quote(suggestion)) + "}}");
  return returns;
}

// Json is a JSON value as it stands. The host writes strict JSON without white space. What is not there is "".
export class Json {
  constructor(public raw: string) {}
  get there(): bool { return this.raw != ""; }
  get int(): i64 { return this.raw == "" ? 0 : I64.parseInt(this.raw); }

  // get is the value of key in an object.
  get(key: string): Json {
    if (!this.raw.startsWith("{")) return new Json("");
    for (let p = 1; p < this.raw.length - 1;) {
      const colon = end(this.raw, p), stop = end(this.raw, colon + 1);
      if (this.raw.substring(p + 1, colon - 1) == key) return new Json(this.raw.substring(colon + 1, stop));
      p = stop + 1;
    }
    return new Json("");
  }

  // at is entry i of an array.
  at(i: i32): Json {
    if (!this.raw.startsWith("[")) return new Json("");
    for (let p = 1; p < this.raw.length - 1; p = end(this.raw, p) + 1) if (i-- == 0) return new Json(this.raw.substring(p, end(this.raw, p)));
    return new Json("");
  }

  // text is what a string stands for; "" when this is none.
  text(): string {
    const parts = new Array<string>();
    let from = 1, n = this.raw.length - 1;
    if (!this.raw.startsWith('"')) return "";
    for (let p = 1; p < n; p++) {
      if (this.raw.charCodeAt(p) != 0x5c) continue; // a backslash
      parts.push(this.raw.substring(from, p++));
      const at = "bfnrt".indexOf(this.raw.charAt(p));
      if (this.raw.charAt(p) == "u") {
        parts.push(String.fromCharCode(I32.parseInt(this.raw.substring(p + 1, p + 5), 16)));
        p += 4;
      } else parts.push(at < 0 ? this.raw.charAt(p) : "\b\f\n\r\t".charAt(at));
      from = p + 1;
    }
    parts.push(this.raw.substring(from, n));
    return parts.join("");
  }
}

// end is where the value that begins at p ends.
function end(s: string, p: i32): i32 {
  let depth = 0, text = false;
  for (; p < s.length; p++) {
    const c = s.charCodeAt(p);
    if (text) {
      if (c == 0x5c) p++;
      else if (c == 0x22) text = false;
    } else if (c == 0x22) text = true;
    else if (c == 0x7b || c == 0x5b) depth++; // { [
    else if (c == 0x7d || c == 0x5d) { if (depth-- == 0) return p; } // } ]
    else if ((c == 0x2c || c == 0x3a) && depth == 0) return p; // , :
  }
  return p;
}

// quote makes a JSON string of text.
export function quote(text: string): string {
  const parts = new Array<string>();
  let from = 0;
  for (let p = 0; p < text.length; p++) {
    const c = text.charCodeAt(p);
    if (c >= 0x20 && c != 0x22 && c != 0x5c) continue;
    parts.push(text.substring(from, p));
    parts.push(c < 0x20 ? "\\u00" + (c < 0x10 ? "0" : "") + c.toString(16) : "\\" + text.charAt(p));
    from = p + 1;
  }
  parts.push(text.substring(from));
  return '"' + parts.join("") + '"';
}
