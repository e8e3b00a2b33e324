;; plugin_trap: out of bounds
;; The address and the offset together are more than 32 bits: not to be taken modulo anything.
(module
  (memory (export "memory") 1)
  (func (export "caponier_v1_call") (result i32) (i32.load offset=0xffffffff (i32.const -1)))
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
