# METADATA
# scope: package
# description: >-
#   May a person be asked about this plan of a call? The call and each step of the plan were decided
#   before, one by one.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.plan

import data.caponier.core.decide

# METADATA
# entrypoint: true
decision := decide.answer("plan")

# allowed is the decision if it allows, as in caponier.core.call.
allowed := decide.allowed("plan")
