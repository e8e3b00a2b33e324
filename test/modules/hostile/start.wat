;; plugin_unavailable: computed or slept for more than
;; Never gets as far as a call.
(module
  (memory (export "memory") 1)
  (func $forever (loop $again (br $again)))
  (start $forever)
  (func (export "caponier_v1_call") (result i32) (i32.const 0))
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
