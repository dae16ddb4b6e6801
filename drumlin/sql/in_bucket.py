"""The tables of a store that DuckDB cannot open itself, because it is in a bucket: as Arrow datasets, read in place.

DuckDB's own extension for S3 would have to be downloaded when it is first used. So Arrow reads the Parquet files,
through the same client as everything else here, and DuckDB is handed rows; it tells Arrow which columns and which rows
it needs. Arrow has a client for S3 of its own, which reads a table's texts 1.6 times as fast where the service is near.
But it would be a second thing to configure, with other rules for credentials, certificates and proxies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drumlin.store.tables.reading import table_files
from drumlin.store.tables.schema import SCHEMAS

if TYPE_CHECKING:
    from contextlib import ExitStack

    from drumlin.store.files import StoreFiles


def datasets(files: StoreFiles, stack: ExitStack) -> dict[str, Any]:
    """A dataset for each table. Files are open as long as `stack` lasts; each is read when rows of it are needed."""
    # It takes a tenth of a second to load.
    from pyarrow import dataset

    form = dataset.ParquetFileFormat()
    made: dict[str, Any] = {}
    for table, schema in SCHEMAS.items():
        parts = [form.make_fragment(stack.enter_context(files.open(path))) for path in table_files(files, table)]
        # Files of an earlier version may have fewer columns: these are NULL.
        made[table] = dataset.FileSystemDataset(parts, _plain(schema), form)
    return made


def _plain(schema: Any) -> Any:
    """The schema as it reads back from Parquet, which does not keep Arrow's dictionaries."""
    kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in schema.types]
    return pa.schema(list(zip(schema.names, kinds, strict=True)))
