// The plugin of test/modules/behave in Rust, without any crate: host/sandbox holds all of them to one table.
#[path = "../../../sdk/rust/caponier.rs"]
mod caponier;
use caponier::*;

fn done(structured: &str) -> i32 {
    output(&format!("{{\"content\":[],\"structured\":{}}}", structured));
    0
}

fn fail(returns: i32, code: &str, message: &str) -> i32 {
    output(&format!("{{\"content\":[],\"error\":{{\"code\":{},\"message\":{},\"suggestion\":\"drink coffee\"}}}}", quote(code), quote(message)));
    returns
}

fn exec(node: &str, stdin: &str) -> i32 {
    let request = format!("{{\"node\":{},\"argv\":[\"uptime\",\"-p\"],\"stdin\":{}}}", node, quote(stdin));
    let (status, r) = operate(ssh_exec, &request);
    match status {
        0 | 6 => {
            let planned = if status == 6 { ",\"planned\":true" } else { "" };
            done(&format!("{{\"exit\":{},\"stdout\":{}{}}}", get(&r, "exit"), quote(&text(get(&r, "stdout"))), planned))
        }
        2 => fail(1, "refused", &text(get(items(get(&r, "deny"))[0], "msg"))),
        4 => fail(1, "bad_request", &text(get(&r, "message"))),
        _ => fail(1, &text(get(&r, "code")), &text(get(&r, "message"))),
    }
}

static mut COUNT: i32 = 41;

// opaque hides a value from the optimiser (Debian's Rust has no black_box yet).
fn opaque<T: Copy>(v: T) -> T {
    unsafe { std::ptr::read_volatile(&v) }
}

fn deep(n: i64) -> i64 {
    if opaque(n) == -1 { 0 } else { deep(n + 1) + n }
}

#[no_mangle]
pub extern "C" fn caponier_v1_describe() -> i32 {
    output(concat!(
        r#"{"abi":1,"minor":2,"name":"behave","version":"1.0.0","tools":[{"name":"behave","title":"Behave","description":"Does as it is told, for the tests of the sandbox.","#,
        r#""input_schema":{"type":"object","properties":{"do":{"type":"string"},"text":{"type":"string"},"n":{"type":"integer"}},"additionalProperties":false},"#,
        r#""output_schema":{"type":"object"},"hints":{"read_only":true,"destructive":false,"idempotent":true,"open_world":false},"#,
        r#""imports":["ssh_exec","ask"],"commands":["uptime"],"budget_ms":10000,"runs":"uptime -p"}],"resources":[],"prompts":[]}"#
    ));
    0
}

#[no_mangle]
pub extern "C" fn caponier_v1_call() -> i32 {
    let input = input();
    let args = get(&input, "args");
    let (what, words) = (text(get(args, "do")), text(get(args, "text")));
    let default = &node(&input);
    match what.as_str() {
        "echo" => done(&format!("{{\"text\":{}}}", quote(&words))),
        "exec" => exec(default, &words),
        "elsewhere" => exec("\"elsewhere\"", &words),
        "ask" => {
            let request = r#"{"key":"k","message":"m","schema":{"type":"object","properties":{}}}"#;
            match operate(ask, request) {
                (PENDING, _) => fail(1, "pending", "waiting"),
                (_, r) => done(&format!("{{\"action\":{}}}", get(&r, "action"))),
            }
        }
        "fail" => fail(1, "teapot", &words),
        "notes" => {
            let note = r#"{"done":1,"total":3,"message":"on the way"}"#;
            log(WARN, "a line");
            progress(note);
            done("{}")
        }
        "count" => unsafe {
            COUNT += 1;
            done(&format!("{{\"n\":{}}}", COUNT))
        },
        "big" => done(&format!("{{\"text\":{}}}", quote(&"x".repeat(get(args, "n").parse().unwrap_or(0))))),
        "trap" => std::process::abort(),
        "spin" => loop {
            opaque(0);
        },
        "grow" => {
            let mut all = vec![];
            loop {
                all.push(vec![1u8; 1 << 20]);
                opaque(all[all.len() - 1][0]);
            }
        }
        "deep" => deep(0) as i32,
        _ => fail(2, "bad_input", &what),
    }
}
