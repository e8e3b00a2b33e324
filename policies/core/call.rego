# METADATA
# scope: package
# description: May this principal call this tool with these arguments?
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.call

import data.caponier.core.decide

# METADATA
# entrypoint: true
decision := decide.answer("call")
