/* caponier.h: all that a plugin in C needs (docs/abi.md). Freestanding, no library:
 *
 *   clang --target=wasm32 -O2 -nostdlib -ffreestanding -mbulk-memory -Wl,--no-entry -Wl,--strip-all -I sdk/c -o NAME.wasm NAME.c
 *
 * Nothing is ever freed: every call starts from the state that initialisation left, so what a call allocates is gone with it. */
#ifndef CAPONIER_H
#define CAPONIER_H

typedef struct { const char *p; unsigned n; } cap_str;               /* text, or a JSON value as it stands; p is 0 for what is not there */
typedef struct { char *p; unsigned n, cap; } cap_buf;                /* JSON or text that is being written */
enum { CAP_OK, CAP_FAILED, CAP_REFUSED, CAP_UNKNOWN, CAP_BAD_REQUEST, CAP_PENDING, CAP_PLANNED }; /* statuses; PLANNED ("minor":2): go on as after OK, check nothing */
enum { CAP_CALL_OK, CAP_CALL_ERROR, CAP_CALL_INPUT };                /* what caponier_v1_call returns */
enum { CAP_DEBUG = -4, CAP_INFO = 0, CAP_WARN = 4, CAP_ERROR = 8 };  /* levels of cap_log */

#define CAPONIER_CALL __attribute__((export_name("caponier_v1_call"))) int caponier_v1_call(void)
#define CAPONIER_DESCRIBE __attribute__((export_name("caponier_v1_describe"))) int caponier_v1_describe(void)
#define CAP_IMPORT(name) __attribute__((import_module("caponier_v1"), import_name(#name)))
#define CAP_OPERATION(name) CAP_IMPORT(name) unsigned cap_##name(const char *request, unsigned n)

CAP_IMPORT(input_len) unsigned cap_input_len(void);
CAP_IMPORT(input_read) unsigned cap_input_read(char *p, unsigned n);
CAP_IMPORT(output_write) unsigned cap_output_write(const char *p, unsigned n);
CAP_IMPORT(resp_len) unsigned cap_resp_len(void);
CAP_IMPORT(resp_read) unsigned cap_resp_read(char *p, unsigned n);
CAP_IMPORT(log) void cap_log_raw(int level, const char *p, unsigned n);
CAP_IMPORT(progress) void cap_progress_raw(const char *p, unsigned n);

// The linker keeps only the operations that are called: they are what plugins.lock lists.
// go generate ./abi writes the next lines.
CAP_OPERATION(ask);
CAP_OPERATION(blob_read);
CAP_OPERATION(blob_write);
CAP_OPERATION(http_request);
CAP_OPERATION(list_commands);
CAP_OPERATION(sftp_get);
CAP_OPERATION(sftp_list);
CAP_OPERATION(sftp_put);
CAP_OPERATION(sftp_read);
CAP_OPERATION(sftp_remove);
CAP_OPERATION(sftp_stat);
CAP_OPERATION(sftp_write);
CAP_OPERATION(snapshots);
CAP_OPERATION(ssh_exec);
CAP_OPERATION(ssh_script);
CAP_OPERATION(stage);
CAP_OPERATION(undo_steps);
// Written by hand again.

extern unsigned char __heap_base;

/* cap_alloc traps when the memory limit is reached. */
static inline char *cap_alloc(unsigned n) {
  static unsigned long next;
  if (!next) next = (unsigned long)&__heap_base;
  unsigned long at = next, end = at + ((n + 7ul) & ~7ul), have = __builtin_wasm_memory_size(0) * 65536ul;
  if (end < at || end > have && __builtin_wasm_memory_grow(0, (end - have + 65535ul) / 65536ul) == -1ul) __builtin_trap();
  next = end;
  return (char *)at;
}

static inline cap_str cap_lit(const char *s) {
  unsigned n = 0;
  while (s[n]) n++;
  return (cap_str){s, n};
}

static inline int cap_is(cap_str a, const char *b) {
  unsigned i = 0;
  while (i < a.n && b[i] && a.p[i] == b[i]) i++;
  return a.p && i == a.n && !b[i];
}

/* Reading: the input of the call, and the response of the last operation. */
static inline cap_str cap_input(void) {
  unsigned n = cap_input_len();
  char *p = cap_alloc(n);
  return (cap_str){p, cap_input_read(p, n)};
}

static inline cap_str cap_response(void) {
  unsigned n = cap_resp_len();
  char *p = cap_alloc(n);
  return (cap_str){p, cap_resp_read(p, n)};
}

/* cap_end returns where the JSON value at p ends. The host writes strict JSON without white space. */
static inline const char *cap_end(const char *p, const char *end) {
  for (int depth = 0, text = 0; p < end; p++) {
    if (text) {
      if (*p == '\\') p++;
      else if (*p == '"') text = 0;
    } else if (*p == '"') text = 1;
    else if (*p == '{' || *p == '[') depth++;
    else if (*p == '}' || *p == ']') { if (depth-- == 0) return p; }
    else if ((*p == ',' || *p == ':') && depth == 0) return p;
  }
  return end;
}

/* cap_at is entry i of a JSON array. */
static inline cap_str cap_at(cap_str array, unsigned i) {
  const char *p = array.p + 1, *end = array.p + array.n;
  if (!array.p || array.n < 2 || array.p[0] != '[') return (cap_str){0, 0};
  for (; p < end && *p != ']'; p = cap_end(p, end) + 1) if (i-- == 0) return (cap_str){p, (unsigned)(cap_end(p, end) - p)};
  return (cap_str){0, 0};
}

/* cap_get is the value of key in a JSON object. */
static inline cap_str cap_get(cap_str object, const char *key) {
  const char *p = object.p + 1, *end = object.p + object.n;
  if (!object.p || object.n < 2 || object.p[0] != '{') return (cap_str){0, 0};
  for (const char *colon, *stop; p < end && *p != '}' && (colon = cap_end(p, end)) < end && *colon == ':'; p = stop + 1) {
    stop = cap_end(colon + 1, end);
    if (colon - p >= 2 && cap_is((cap_str){p + 1, (unsigned)(colon - p - 2)}, key)) return (cap_str){colon + 1, (unsigned)(stop - colon - 1)};
  }
  return (cap_str){0, 0};
}

static inline long long cap_int(cap_str v) {
  unsigned i = v.n && v.p[0] == '-';
  long long n = 0;
  for (; i < v.n && v.p[i] >= '0' && v.p[i] <= '9'; i++) n = n * 10 + (v.p[i] - '0');
  return v.n && v.p[0] == '-' ? -n : n;
}

static inline unsigned cap_hex4(const char *p) {
  unsigned v = 0;
  for (int i = 0; i < 4; i++) v = v << 4 | (unsigned)(p[i] <= '9' ? p[i] - '0' : ((p[i] | 32) - 'a' + 10) & 15);
  return v;
}

/* cap_text is the text that a JSON string stands for, in UTF-8, with U+FFFD for half a surrogate pair; nothing when v is not a string. */
static inline cap_str cap_text(cap_str v) {
  if (v.n < 2 || v.p[0] != '"') return (cap_str){0, 0};
  char *out = cap_alloc(v.n), *o = out;
  for (const char *p = v.p + 1, *end = v.p + v.n - 1; p < end; p++) {
    if (*p != '\\') { *o++ = *p; continue; }
    const char *at = "b\bf\fn\nr\rt\t";
    unsigned c = 0;
    if (*++p == 'u') {
      c = end - p > 4 ? cap_hex4(p + 1) : 0xfffd, p += 4;
      unsigned low = c >> 10 == 0x36 && end - p > 6 && p[1] == '\\' && p[2] == 'u' ? cap_hex4(p + 3) : 0;
      if (low >> 10 == 0x37) c = 0x10000 + ((c & 0x3ff) << 10) + (low & 0x3ff), p += 6; else if (c >> 11 == 0x1b) c = 0xfffd;
      if (c >= 0x10000) *o++ = (char)(0xf0 | c >> 18), *o++ = (char)(0x80 | (c >> 12 & 63));
      else if (c >= 0x800) *o++ = (char)(0xe0 | c >> 12);
      if (c >= 0x800) *o++ = (char)(0x80 | (c >> 6 & 63));
      else if (c >= 0x80) *o++ = (char)(0xc0 | c >> 6);
      *o++ = (char)(c >= 0x80 ? 0x80 | (c & 63) : c);
    } else {
      while (*at && *at != *p) at += 2;
      *o++ = *at ? at[1] : *p;
    }
  }
  return (cap_str){out, (unsigned)(o - out)};
}

/* Writing. */
static inline void cap_add(cap_buf *b, cap_str s) {
  if (b->n + s.n > b->cap) {
    unsigned cap = (b->n + s.n) * 2 + 64;
    char *p = cap_alloc(cap);
    __builtin_memcpy(p, b->p, b->n);
    b->p = p, b->cap = cap;
  }
  __builtin_memcpy(b->p + b->n, s.p, s.n);
  b->n += s.n;
}

static inline void cap_put(cap_buf *b, const char *literal) { cap_add(b, cap_lit(literal)); }

/* cap_quote appends text as a JSON string. */
static inline void cap_quote(cap_buf *b, cap_str text) {
  cap_put(b, "\"");
  for (unsigned i = 0; i < text.n; i++) {
    unsigned char c = (unsigned char)text.p[i];
    char escaped[6] = {'\\', 'u', '0', '0', (char)('0' + (c >> 4)), "0123456789abcdef"[c & 15]};
    if (c < 0x20) cap_add(b, (cap_str){escaped, 6});
    else {
      if (c == '"' || c == '\\') cap_put(b, "\\");
      cap_add(b, (cap_str){text.p + i, 1});
    }
  }
  cap_put(b, "\"");
}

static inline void cap_number(cap_buf *b, long long n) {
  char digits[20], *p = digits + 20;
  unsigned long long u = n < 0 ? -(unsigned long long)n : (unsigned long long)n;
  do *--p = (char)('0' + u % 10); while (u /= 10);
  if (n < 0) cap_put(b, "-");
  cap_add(b, (cap_str){p, (unsigned)(digits + 20 - p)});
}

static inline void cap_output(cap_buf b) { cap_output_write(b.p, b.n); }
static inline void cap_log(int level, const char *line) { cap_log_raw(level, line, cap_lit(line).n); }
static inline void cap_progress(const char *json) { cap_progress_raw(json, cap_lit(json).n); }

/* cap_node is the name of the default node, as a JSON string. */
static inline cap_str cap_node(cap_str input) {
  cap_str nodes = cap_get(input, "nodes"), node;
  for (unsigned i = 0; (node = cap_at(nodes, i)).p; i++) if (cap_is(cap_get(node, "default"), "true")) return cap_get(node, "name");
  return (cap_str){"\"\"", 2};
}
#endif
