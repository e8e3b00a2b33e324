package caponier.core.operation_test

import data.caponier.core.fixture as f

# Each check alone refuses, also those that others imply: whoever takes one out of the conjunction hears of it here.
test_with_all_checks_it_is_allowed if f.operated(f.run(["pct", "status", "101"])).allow

test_schema_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.check.schema.ok as false

test_freeze_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.check.freeze.ok as false

test_identity_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.check.identity.ok as false

test_grant_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.check.grant.ok as false

test_imports_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.check.imports.ok as false

test_declared_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.check.declared.ok as false

test_bound_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.check.bound.ok as false

test_protected_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.check.protected.operation_ok as false

test_tier_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.check.tier.operation_ok as false

test_role_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.check.role.operation_ok as false

test_node_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.check.node.operation_known as false

test_readonly_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.check.readonly.operation_ok as false

test_command_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.check.command.operation_ok as false

test_path_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.check.path.operation_ok as false

test_file_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.check.file.ok as false

test_egress_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.check.egress.operation_ok as false

test_limits_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.check.limits.ok as false

test_site_alone_refuses if f.operated(f.run(["pct", "status", "101"])).allow == false with data.caponier.core.operation.site_deny as {{"id": "x", "msg": "y"}}
