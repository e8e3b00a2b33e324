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

# allowed is the decision where it allows. The host finds from it which members of the input an
# answer that allows depends on, and decides questions that agree in all of them once.
allowed := decide.allowed("operation")
