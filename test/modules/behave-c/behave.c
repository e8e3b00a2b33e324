/* The plugin of test/modules/behave in C: host/sandbox holds all of them to one table. */
#include "caponier.h"

CAPONIER_DESCRIBE {
  cap_buf b = {0};
  cap_put(&b, "{\"abi\":1,\"minor\":2,\"name\":\"behave\",\"version\":\"1.0.0\",\"tools\":[{\"name\":\"behave\",\"title\":\"Behave\",\"description\":\"Does as it is told, for the tests of the sandbox.\","
    "\"input_schema\":{\"type\":\"object\",\"properties\":{\"do\":{\"type\":\"string\"},\"text\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"}},\"additionalProperties\":false},"
    "\"output_schema\":{\"type\":\"object\"},\"hints\":{\"read_only\":true,\"destructive\":false,\"idempotent\":true,\"open_world\":false},"
    "\"imports\":[\"ssh_exec\",\"ask\"],\"commands\":[\"uptime\"],\"budget_ms\":10000,\"runs\":\"uptime -p\"}],\"resources\":[],\"prompts\":[]}");
  cap_output(b);
  return 0;
}

static int fail(int code, cap_str id, cap_str message) {
  cap_buf b = {0};
  cap_put(&b, "{\"content\":[],\"error\":{\"code\":"), cap_quote(&b, id);
  cap_put(&b, ",\"message\":"), cap_quote(&b, message), cap_put(&b, ",\"suggestion\":\"drink coffee\"}}");
  cap_output(b);
  return code;
}

static int done(cap_buf structured) {
  cap_buf b = {0};
  cap_put(&b, "{\"content\":[],\"structured\":"), cap_add(&b, (cap_str){structured.p, structured.n}), cap_put(&b, "}");
  cap_output(b);
  return CAP_CALL_OK;
}

static int exec(cap_str text, cap_str node) {
  cap_buf b = {0}, out = {0};
  cap_put(&b, "{\"node\":"), cap_add(&b, node), cap_put(&b, ",\"argv\":[\"uptime\",\"-p\"],\"stdin\":");
  cap_quote(&b, text), cap_put(&b, "}");
  unsigned status = cap_ssh_exec(b.p, b.n);
  cap_str r = cap_response();
  if (status == CAP_REFUSED) return fail(CAP_CALL_ERROR, cap_lit("refused"), cap_text(cap_get(cap_at(cap_get(r, "deny"), 0), "msg")));
  if (status == CAP_BAD_REQUEST) return fail(CAP_CALL_ERROR, cap_lit("bad_request"), cap_text(cap_get(r, "message")));
  if (status != CAP_OK && status != CAP_PLANNED) return fail(CAP_CALL_ERROR, cap_text(cap_get(r, "code")), cap_text(cap_get(r, "message")));
  cap_put(&out, "{\"exit\":"), cap_number(&out, cap_int(cap_get(r, "exit")));
  cap_put(&out, ",\"stdout\":"), cap_quote(&out, cap_text(cap_get(r, "stdout"))), cap_put(&out, status == CAP_PLANNED ? ",\"planned\":true}" : "}");
  return done(out);
}

static int count = 41;
static int deep(volatile int n) { return n == -1 ? 0 : deep(n + 1) + n; }

CAPONIER_CALL {
  cap_str input = cap_input(), args = cap_get(input, "args"), what = cap_text(cap_get(args, "do")), text = cap_text(cap_get(args, "text"));
  cap_buf b = {0};
  if (cap_is(what, "echo")) return cap_put(&b, "{\"text\":"), cap_quote(&b, text), cap_put(&b, "}"), done(b);
  if (cap_is(what, "exec")) return exec(text, cap_node(input));
  if (cap_is(what, "elsewhere")) return exec(text, (cap_str){"\"elsewhere\"", 11});
  if (cap_is(what, "ask")) {
    cap_put(&b, "{\"key\":\"k\",\"message\":\"m\",\"schema\":{\"type\":\"object\",\"properties\":{}}}");
    if (cap_ask(b.p, b.n) == CAP_PENDING) return fail(CAP_CALL_ERROR, cap_lit("pending"), cap_lit("waiting"));
    b.n = 0, cap_put(&b, "{\"action\":"), cap_add(&b, cap_get(cap_response(), "action")), cap_put(&b, "}");
    return done(b);
  }
  if (cap_is(what, "fail")) return fail(CAP_CALL_ERROR, cap_lit("teapot"), text);
  if (cap_is(what, "notes")) return cap_log(CAP_WARN, "a line"), cap_progress("{\"done\":1,\"total\":3,\"message\":\"on the way\"}"), cap_put(&b, "{}"), done(b);
  if (cap_is(what, "count")) return cap_put(&b, "{\"n\":"), cap_number(&b, ++count), cap_put(&b, "}"), done(b);
  if (cap_is(what, "big")) {
    unsigned n = (unsigned)cap_int(cap_get(args, "n"));
    char *p = cap_alloc(n);
    __builtin_memset(p, 'x', n);
    return cap_put(&b, "{\"text\":"), cap_quote(&b, (cap_str){p, n}), cap_put(&b, "}"), done(b);
  }
  if (cap_is(what, "trap")) __builtin_trap();
  if (cap_is(what, "spin")) for (volatile int i = 0;; i++);
  if (cap_is(what, "grow")) for (;;) *(volatile char *)cap_alloc(1 << 20) = 1;
  if (cap_is(what, "deep")) return deep(0);
  return fail(CAP_CALL_INPUT, cap_lit("bad_input"), what);
}
