;; budget: budget
;; 2^60 calls, never more than 60 deep, and no loop.
(module
  (memory (export "memory") 1)
  (func $twice (param $n i32)
    (if (local.get $n) (then
      (call $twice (i32.sub (local.get $n) (i32.const 1)))
      (call $twice (i32.sub (local.get $n) (i32.const 1))))))
  (func (export "caponier_v1_call") (result i32) (call $twice (i32.const 60)) (i32.const 0))
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
