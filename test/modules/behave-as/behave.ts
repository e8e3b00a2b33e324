// The plugin of test/modules/behave in AssemblyScript: host/sandbox holds all of them to one table.
import { Input, BAD_INPUT, ERROR, Level, ask, done, fail, log, output, progress, quote, sshExec } from "../../../sdk/assemblyscript/caponier";

export function caponier_v1_describe(): i32 {
  output('{"abi":1,"minor":2,"name":"behave","version":"1.0.0","tools":[{"name":"behave","title":"Behave","description":"Does as it is told, for the tests of the sandbox.",' +
    '"input_schema":{"type":"object","properties":{"do":{"type":"string"},"text":{"type":"string"},"n":{"type":"integer"}},"additionalProperties":false},' +
    '"output_schema":{"type":"object"},"hints":{"read_only":true,"destructive":false,"idempotent":true,"open_world":false},' +
    '"imports":["ssh_exec","ask"],"commands":["uptime"],"budget_ms":10000,"runs":"uptime -p"}],"resources":[],"prompts":[]}');
  return 0;
}

function exec(node: string, text: string): i32 {
  const r = sshExec('{"node":' + quote(node) + ',"argv":["uptime","-p"],"stdin":' + quote(text) + "}");
  if (!r.ok) return fail(ERROR, r.code, r.message);
  return done('{"exit":' + r.json.get("exit").raw + ',"stdout":' + quote(r.json.get("stdout").text()) + (r.planned ? ',"planned":true}' : "}"));
}

let count = 41;

function deep(n: i32): i32 { return n == -1 ? 0 : deep(n + 1) + n; }

export function caponier_v1_call(): i32 {
  const input = new Input(), args = input.args, what = args.get("do").text(), text = args.get("text").text();
  if (what == "echo") return done('{"text":' + quote(text) + "}");
  if (what == "exec") return exec(input.node, text);
  if (what == "elsewhere") return exec("elsewhere", text);
  if (what == "ask") {
    const r = ask('{"key":"k","message":"m","schema":{"type":"object","properties":{}}}');
    return r.pending ? fail(ERROR, "pending", "waiting") : done('{"action":' + r.json.get("action").raw + "}");
  }
  if (what == "fail") return fail(ERROR, "teapot", text, "drink coffee");
  if (what == "notes") {
    log(Level.WARN, "a line");
    progress('{"done":1,"total":3,"message":"on the way"}');
    return done("{}");
  }
  if (what == "count") return done('{"n":' + (++count).toString() + "}");
  if (what == "big") return done('{"text":' + quote("x".repeat(<i32>args.get("n").int)) + "}");
  if (what == "trap") unreachable();
  if (what == "spin") for (let i = 0; ; i++) if (load<u8>(i & 0xff) == 255 && i == -1) return 0;
  if (what == "grow") for (;;) store<u8>(heap.alloc(1 << 20), 1);
  if (what == "deep") return deep(0);
  return fail(BAD_INPUT, "bad_input", what);
}
