# METADATA
# scope: package
# description: May this principal see this tool in a list, or a node or guest that it could act on?
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.visible

import data.caponier.core.decide

# METADATA
# entrypoint: true
decision := decide.answer("visible")
