// caponier.rs: all that a plugin in Rust needs (docs/abi.md), without any crate. Put it beside the plugin, and name it with `mod caponier;`:
//
//   rustc --edition 2021 --target wasm32-unknown-unknown -O -C panic=abort -C strip=symbols --crate-type cdylib -o NAME.wasm NAME.rs
//
// Every call starts from the state that initialisation left, so what a call allocates is gone with it.
#![allow(dead_code)]

#[link(wasm_import_module = "caponier_v1")]
extern "C" {
    fn input_len() -> u32;
    fn input_read(p: *mut u8, n: u32) -> u32;
    fn output_write(p: *const u8, n: u32) -> u32;
    fn resp_len() -> u32;
    fn resp_read(p: *mut u8, n: u32) -> u32;
    #[link_name = "log"]
    fn log_raw(level: i32, p: *const u8, n: u32);
    #[link_name = "progress"]
    fn progress_raw(p: *const u8, n: u32);
}

// The operations. The linker keeps those that are used: they are what plugins.lock lists.
#[link(wasm_import_module = "caponier_v1")]
extern "C" {
    // go generate ./abi writes the next lines.
    pub fn ask(p: *const u8, n: u32) -> u32;
    pub fn blob_read(p: *const u8, n: u32) -> u32;
    pub fn blob_write(p: *const u8, n: u32) -> u32;
    pub fn http_request(p: *const u8, n: u32) -> u32;
    pub fn list_commands(p: *const u8, n: u32) -> u32;
    pub fn sftp_get(p: *const u8, n: u32) -> u32;
    pub fn sftp_list(p: *const u8, n: u32) -> u32;
    pub fn sftp_put(p: *const u8, n: u32) -> u32;
    pub fn sftp_read(p: *const u8, n: u32) -> u32;
    pub fn sftp_remove(p: *const u8, n: u32) -> u32;
    pub fn sftp_stat(p: *const u8, n: u32) -> u32;
    pub fn sftp_write(p: *const u8, n: u32) -> u32;
    pub fn snapshots(p: *const u8, n: u32) -> u32;
    pub fn ssh_exec(p: *const u8, n: u32) -> u32;
    pub fn ssh_script(p: *const u8, n: u32) -> u32;
    pub fn stage(p: *const u8, n: u32) -> u32;
    pub fn undo_steps(p: *const u8, n: u32) -> u32;
    // Written by hand again.
}

pub type Operation = unsafe extern "C" fn(*const u8, u32) -> u32;

/// Statuses of an operation. After PLANNED ("minor":2) go on as after OK, and check nothing.
pub const OK: u32 = 0;
pub const FAILED: u32 = 1;
pub const REFUSED: u32 = 2;
pub const UNKNOWN: u32 = 3;
pub const BAD_REQUEST: u32 = 4;
pub const PENDING: u32 = 5;
pub const PLANNED: u32 = 6;

/// What caponier_v1_call returns.
pub const CALL_OK: i32 = 0;
pub const CALL_ERROR: i32 = 1;
pub const CALL_INPUT: i32 = 2;

/// Levels of log.
pub const DEBUG: i32 = -4;
pub const INFO: i32 = 0;
pub const WARN: i32 = 4;
pub const ERROR: i32 = 8;

pub fn log(level: i32, line: &str) {
    unsafe { log_raw(level, line.as_ptr(), line.len() as u32) };
}

pub fn progress(json: &str) {
    unsafe { progress_raw(json.as_ptr(), json.len() as u32) };
}

/// The input of the call, a JSON object.
pub fn input() -> String {
    read(input_len, input_read)
}

/// Asks for an operation, and returns its status and its response, a JSON object.
pub fn operate(operation: Operation, request: &str) -> (u32, String) {
    let status = unsafe { operation(request.as_ptr(), request.len() as u32) };
    (status, read(resp_len, resp_read))
}

/// The name of the default node in the input, as a JSON string.
pub fn node(input: &str) -> String {
    let nodes = items(get(input, "nodes"));
    nodes.iter().find(|n| get(n, "default") == "true").map_or("\"\"", |n| get(n, "name")).to_string()
}

/// The error of a response that is not OK, as a JSON object for the output of the call.
pub fn error(status: u32, response: &str) -> String {
    let (code, message) = match status {
        REFUSED => ("\"refused\"", items(get(response, "deny")).first().map_or("\"\"", |d| get(d, "msg"))),
        BAD_REQUEST => ("\"bad_request\"", get(response, "message")),
        _ => (get(response, "code"), get(response, "message")),
    };
    format!("{{\"content\":[],\"error\":{{\"code\":{},\"message\":{}}}}}", quote(&text(code)), quote(&text(message)))
}

fn read(len: unsafe extern "C" fn() -> u32, read: unsafe extern "C" fn(*mut u8, u32) -> u32) -> String {
    unsafe {
        let mut b = vec![0u8; len() as usize];
        let n = read(b.as_mut_ptr(), b.len() as u32);
        b.truncate(n as usize);
        String::from_utf8_unchecked(b) // the host writes UTF-8
    }
}

pub fn output(s: &str) {
    unsafe { output_write(s.as_ptr(), s.len() as u32) };
}

/// Where the JSON value that s begins with ends. The host writes strict JSON without white space.
pub fn end(s: &str) -> usize {
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

pub fn get<'a>(object: &'a str, key: &str) -> &'a str {
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

pub fn items(array: &str) -> Vec<&str> {
    let (mut s, mut all) = (array.strip_prefix('[').unwrap_or(""), vec![]);
    while s.len() > 1 {
        let stop = end(s);
        all.push(&s[..stop]);
        s = &s[stop + 1..];
    }
    all
}

pub fn text(v: &str) -> String {
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

pub fn quote(s: &str) -> String {
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
