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

# allowed is the decision if it allows. The host derives from it the members of the input on which
# such an answer depends, and decides questions that agree in all of them only once.
allowed := decide.allowed("call")
