"""Zarr by Multi-Storage Client's profiles, as PhysicsNeMo's example has it: not even the import changes.

export MSC_CONFIG=./msc_config.yaml
"""

import zarr

zarr_group = zarr.open("msc://cmip6-pds/CMIP6/ScenarioMIP/NOAA-GFDL/GFDL-ESM4/ssp119/r1i1p1f1/day/tas/gr1/v20180701")
print(zarr_group.tree())

input_path = "msc://cwb-diffusions/2023-01-24-cwb-4years.zarr"
print(zarr.open_consolidated(input_path)["cwb"][0].mean())
