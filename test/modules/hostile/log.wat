;; plugin_trap: unreachable
;; A million lines, of which the host takes the first thousand.
(module
  (import "caponier_v1" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\1b[2J\e2\80\ae a line that would move the cursor")
  (func (export "caponier_v1_call") (result i32) (local $n i32)
    (loop $more
      (call $log (i32.const 8) (i32.const 0) (i32.const 4096))
      (br_if $more (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 1000000))))
    unreachable)
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
