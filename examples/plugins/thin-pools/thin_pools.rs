// thin_pools is a plugin that says how full the thin pools of a node are. One that runs full stops
// every guest on it, and its metadata can fill before its data do. What it cannot read is an error,
// never an empty node.
#[path = "../../../sdk/rust/caponier.rs"] // beside this file, in a folder of your own: no #[path]
mod caponier;
use caponier::*;

#[no_mangle]
pub extern "C" fn caponier_v1_describe() -> i32 {
    output(concat!(
        r#"{"abi":1,"minor":2,"name":"thin_pools","version":"1.0.0","tools":[{"#,
        r#""name":"thin_pools","title":"Thin pools","#,
        r#""description":"Say how full the LVM thin pools of a node are, data and metadata, the "#,
        r#"fullest first: a full one stops every guest on it. Storages of other kinds "#,
        r#"are left out. Example: {\"node\":\"pve1\",\"full_percent\":80}","#,
        r#""input_schema":{"type":"object","properties":{"#,
        r#""node":{"type":"string","description":"Node, if not the default","#,
        r#""x-caponier-target":"node"},"#,
        r#""full_percent":{"type":"integer","description":"From here on it is too full","#,
        r#""minimum":1,"maximum":100,"default":80}},"additionalProperties":false},"#,
        r#""output_schema":{"type":"object","properties":{"node":{"type":"string"},"#,
        r#""good":{"type":"boolean"},"pools":{"type":"array","items":{"type":"object","#,
        r#""properties":{"pool":{"type":"string"},"data_percent":{"type":"number"},"#,
        r#""metadata_percent":{"type":"number"},"full":{"type":"boolean"}},"#,
        r#""required":["pool","data_percent","metadata_percent","full"]}}},"#,
        r#""required":["node","good","pools"]},"#,
        r#""hints":{"read_only":true,"destructive":false,"idempotent":true,"open_world":false},"#,
        r#""imports":["ssh_exec"],"commands":["lvs"],"budget_ms":20000,"#,
        r#""runs":"lvs --noheadings --separator : -o vg_name,lv_name,lv_attr,…""#,
        r#"}],"resources":[],"prompts":[]}"#
    ));
    0
}

struct Pool {
    name: String,
    data: f64,
    metadata: f64,
}

/// Reads a line of lvs: VG, LV, attributes, percent of the data, percent of the metadata. None is a
/// volume that is no pool.
fn pool(line: &str) -> Result<Option<Pool>, String> {
    let broken = || Err(format!("lvs printed {:?}, which is no volume", line));
    let fields: Vec<&str> = line.trim().split(':').collect();
    let (vg, lv, attributes, data, metadata) = match fields[..] {
        [vg, lv, attributes, data, metadata] => (vg, lv, attributes, data, metadata),
        _ => return broken(),
    };
    if vg.is_empty() || lv.is_empty() || attributes.len() != 10 {
        return broken();
    }
    if !attributes.starts_with('t') {
        return Ok(None); // lvs(8): t is a thin pool, V a volume in one
    }
    match (percent(data), percent(metadata)) {
        (Some(data), Some(metadata)) => {
            Ok(Some(Pool { name: format!("{}/{}", vg, lv), data, metadata }))
        }
        _ => Err(format!("lvs does not say how full {}/{} is: it may not be active", vg, lv)),
    }
}

fn percent(text: &str) -> Option<f64> {
    text.parse().ok().filter(|p| (0.0..=100.0).contains(p))
}

/// Ends the call with an error of the tool.
fn fail(code: &str, message: &str) -> i32 {
    let (code, message) = (quote(code), quote(message));
    output(&format!(r#"{{"content":[],"error":{{"code":{},"message":{}}}}}"#, code, message));
    CALL_ERROR
}

#[no_mangle]
pub extern "C" fn caponier_v1_call() -> i32 {
    let input = input();
    let (args, default) = (get(&input, "args"), node(&input));
    let node = match get(args, "node") {
        "" => &default,
        name => name,
    };
    let limit: f64 = get(args, "full_percent").parse().unwrap_or(80.0);
    let columns = "vg_name,lv_name,lv_attr,data_percent,metadata_percent";
    let (status, r) = operate(
        ssh_exec,
        &format!(
            r#"{{"node":{},"argv":["lvs","--noheadings","--separator",":","-o","{}"]}}"#,
            node, columns
        ),
    );
    if status != OK {
        output(&error(status, &r)); // refused by policy, or failed on the way
        return CALL_ERROR;
    }
    if get(&r, "exit") != "0" {
        return fail("failed", text(get(&r, "stderr")).trim_end());
    }
    if get(&r, "truncated") == "true" {
        return fail("too_long", "lvs printed more than the host reads");
    }
    let mut pools = vec![];
    for line in text(get(&r, "stdout")).lines().filter(|l| !l.trim().is_empty()) {
        match pool(line) {
            Ok(found) => pools.extend(found),
            Err(message) => return fail("bad_output", &message),
        }
    }
    pools.sort_by(|a, b| b.data.max(b.metadata).total_cmp(&a.data.max(a.metadata)));
    let good = pools.iter().all(|p| p.data < limit && p.metadata < limit);
    let rows: Vec<String> = pools
        .iter()
        .map(|p| {
            format!(
                r#"{{"pool":{},"data_percent":{},"metadata_percent":{},"full":{}}}"#,
                quote(&p.name), p.data, p.metadata, p.data >= limit || p.metadata >= limit
            )
        })
        .collect();
    output(&format!(
        r#"{{"content":[],"structured":{{"node":{},"good":{},"pools":[{}]}}}}"#,
        node, good, rows.join(",")
    ));
    CALL_OK
}
