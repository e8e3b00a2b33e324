# METADATA
# scope: package
# description: May this running call do this operation?
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.operation

import data.caponier.core.decide

# METADATA
# entrypoint: true
decision := decide.answer("operation")
