package caponier.core.use_test

import data.caponier.core.fixture
import data.caponier.core.use

test_placeholder if use.of with input as fixture.call with data.site as fixture.site
