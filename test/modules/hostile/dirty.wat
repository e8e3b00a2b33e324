;; ok
;; Pointers and lengths that were 64 bits a moment ago: what is above their lower halves, which the machine's register may still hold, says nothing.
(module
  (import "caponier_v1" "output_write" (func $output_write (param i32 i32) (result i32)))
  (import "caponier_v1" "input_read" (func $input_read (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "{}")
  (global $dirt (mut i64) (i64.const 0xdeadbeef00000000))
  (func $dirty (param i64) (result i32) (i32.wrap_i64 (i64.or (global.get $dirt) (local.get 0))))
  (func (export "caponier_v1_call") (result i32)
    (drop (call $input_read (i32.wrap_i64 (i64.or (global.get $dirt) (i64.const 1024))) (i32.wrap_i64 (i64.or (global.get $dirt) (i64.const 64)))))
    (if (i32.ne (i32.load8_u (i32.const 1024)) (i32.const 123)) (then unreachable)) ;; {
    (call $output_write (call $dirty (i64.const 16)) (call $dirty (i64.const 2))))
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
