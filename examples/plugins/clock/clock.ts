// clock is a plugin that says whether the clock of a node is right, as the node knows it. A cluster
// falls apart, and tokens and certificates fail, when clocks differ. What it cannot read is an
// error, never a good clock.
import { ERROR, Input, done, fail, output, quote, sshExec } from "../../../sdk/assemblyscript/caponier";

export function caponier_v1_describe(): i32 {
  output('{"abi":1,"minor":2,"name":"clock","version":"1.0.0","tools":[{' +
    '"name":"node_clock","title":"Clock of a node",' +
    '"description":"Say whether the clock of a node is kept by time servers, and whether it is ' +
    'synchronized now. It does not set it. Example: {\\"node\\":\\"pve1\\"}",' +
    '"input_schema":{"type":"object","properties":{"node":{"type":"string",' +
    '"description":"Node, if not the default","x-caponier-target":"node"}},' +
    '"additionalProperties":false},' +
    '"output_schema":{"type":"object","properties":{"node":{"type":"string"},' +
    '"good":{"type":"boolean"},"ntp":{"type":"boolean"},"synchronized":{"type":"boolean"},' +
    '"timezone":{"type":"string"}},"required":["node","good","ntp","synchronized","timezone"]},' +
    '"hints":{"read_only":true,"destructive":false,"idempotent":true,"open_world":false},' +
    '"imports":["ssh_exec"],"commands":["timedatectl show"],"budget_ms":10000,' +
    '"runs":"timedatectl show"}],"resources":[],"prompts":[]}');
  return 0;
}

// Shown is what `timedatectl show` prints: a property on each line, as NAME=VALUE.
class Shown {
  constructor(private lines: string[]) {}

  // of is the value of a property that is there exactly once, or "".
  of(name: string): string {
    let value = "", seen = 0;
    for (let i = 0; i < this.lines.length; i++) {
      if (!this.lines[i].startsWith(name + "=")) continue;
      value = this.lines[i].substring(name.length + 1);
      seen++;
    }
    return seen == 1 ? value : "";
  }
}

function known(flag: string): bool { return flag == "yes" || flag == "no"; }

export function caponier_v1_call(): i32 {
  const input = new Input(), named = input.args.get("node");
  const node = quote(named.there ? named.text() : input.node);
  const r = sshExec('{"node":' + node + ',"argv":["timedatectl","show"]}');
  if (!r.ok) return fail(ERROR, r.code, r.message); // refused by policy, or failed on the way
  if (r.json.get("exit").raw != "0") return fail(ERROR, "failed", r.json.get("stderr").text().trimEnd());
  const shown = new Shown(r.json.get("stdout").text().split("\n"));
  const ntp = shown.of("NTP"), synchronized = shown.of("NTPSynchronized"), zone = shown.of("Timezone");
  if (!known(ntp) || !known(synchronized) || zone == "") {
    return fail(ERROR, "bad_output", "timedatectl does not say whether the clock is synchronized",
      "Tell your user: whether the clock is right is not known.");
  }
  const good = ntp == "yes" && synchronized == "yes";
  return done('{"node":' + node + ',"good":' + good.toString() + ',"ntp":' + (ntp == "yes").toString() +
    ',"synchronized":' + (synchronized == "yes").toString() + ',"timezone":' + quote(zone) + "}");
}
