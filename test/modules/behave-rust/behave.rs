// The plugin of test/modules/behave in Rust, without any crate: host/sandbox holds all of them to one table.
#[link(wasm_import_module = "caponier_v1")]
extern "C" {
    fn input_len() -> u32;
    fn input_read(p: *mut u8, n: u32) -> u32;
    fn output_write(p: *const u8, n: u32) -> u32;
    fn resp_len() -> u32;
    fn resp_read(p: *mut u8, n: u32) -> u32;
    fn log(level: i32, p: *const u8, n: u32);
    fn progress(p: *const u8, n: u32);
    fn ssh_exec(p: *const u8, n: u32) -> u32;
    fn ask(p: *const u8, n: u32) -> u32;
}

fn read(len: unsafe extern "C" fn() -> u32, read: unsafe extern "C" fn(*mut u8, u32) -> u32) -> String {
    unsafe {
        let mut b = vec![0u8; len() as usize];
        let n = read(b.as_mut_ptr(), b.len() as u32);
        b.truncate(n as usize);
        String::from_utf8_unchecked(b) // the host writes UTF-8
    }
}

fn output(s: &str) {
    unsafe { output_write(s.as_ptr(), s.len() as u32) };
}

// end is where the JSON value that s begins with ends. The host writes strict JSON without white space.
fn end(s: &str) -> usize {
    let (mut depth, mut text, mut escaped) = (0, false, false);
    for (i, c) in s.bytes().enumerate() {
        match c {
            _ if escaped => escaped = false,
            b'\\' if text => escaped = true,
            b'"' => text = !text,
            _ if text => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth > 0 => depth -= 1,
            b'}' | b']' | b',' | b':' if depth == 0 => return i,
            _ => {}
        }
    }
    s.len()
}

fn get<'a>(object: &'a str, key: &str) -> &'a str {
    let mut s = object.strip_prefix('{').unwrap_or("");
    while s.len() > 1 {
        let colon = end(s);
        let rest = &s[colon + 1..];
        let stop = end(rest);
        if s[..colon].trim_matches('"') == key {
            return &rest[..stop];
        }
        s = &rest[stop + 1..];
    }
    ""
}

fn items(array: &str) -> Vec<&str> {
    let (mut s, mut all) = (array.strip_prefix('[').unwrap_or(""), vec![]);
    while s.len() > 1 {
        let stop = end(s);
        all.push(&s[..stop]);
        s = &s[stop + 1..];
    }
    all
}

fn text(v: &str) -> String {
    let (mut units, mut chars) = (Vec::<u16>::new(), v.trim_start_matches('"').chars());
    let put = |units: &mut Vec<u16>, c: char| units.extend_from_slice(c.encode_utf16(&mut [0; 2]));
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => match chars.next().unwrap_or('\\') {
                'u' => units.push(u16::from_str_radix(&chars.by_ref().take(4).collect::<String>(), 16).unwrap_or(0xfffd)),
                'b' => units.push(8),
                'f' => units.push(12),
                'n' => units.push(10),
                'r' => units.push(13),
                't' => units.push(9),
                c => put(&mut units, c),
            },
            c => put(&mut units, c),
        }
    }
    String::from_utf16_lossy(&units)
}

fn quote(s: &str) -> String {
    let mut out = String::from("\"");
    for c in s.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if (c as u32) < 0x20 => out += &format!("\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out + "\""
}

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
    let status = unsafe { ssh_exec(request.as_ptr(), request.len() as u32) };
    let r = read(resp_len, resp_read);
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
    let input = read(input_len, input_read);
    let args = get(&input, "args");
    let (what, words) = (text(get(args, "do")), text(get(args, "text")));
    let default = items(get(&input, "nodes")).into_iter().find(|n| get(n, "default") == "true").map_or("\"\"", |n| get(n, "name"));
    match what.as_str() {
        "echo" => done(&format!("{{\"text\":{}}}", quote(&words))),
        "exec" => exec(default, &words),
        "elsewhere" => exec("\"elsewhere\"", &words),
        "ask" => {
            let request = r#"{"key":"k","message":"m","schema":{"type":"object","properties":{}}}"#;
            match unsafe { ask(request.as_ptr(), request.len() as u32) } {
                5 => fail(1, "pending", "waiting"),
                _ => done(&format!("{{\"action\":{}}}", get(&read(resp_len, resp_read), "action"))),
            }
        }
        "fail" => fail(1, "teapot", &words),
        "notes" => {
            let note = r#"{"done":1,"total":3,"message":"on the way"}"#;
            unsafe {
                log(4, "a line".as_ptr(), 6);
                progress(note.as_ptr(), note.len() as u32);
            }
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
