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

# allowed is the decision if it allows. The host derives from it the members of the input on which
# such an answer depends, and decides questions that agree in all of them only once.
allowed := decide.allowed("operation")
