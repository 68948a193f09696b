"""The guard in other people's software: each module plugs into one package, and imports it when it is first used."""
