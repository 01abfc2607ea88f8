"""Where credentials come from, and the classes that a function for ``S3Options(credentials=…)`` returns.

Each store uses the first of its sources that has credentials; ``penstock doctor URL`` names it.

- S3 and services that speak its dialect: arguments of ``S3Options`` (``access_key`` with ``secret_key``,
  ``credentials``, ``credentials_process``, ``anonymous``); the service's own variables; ``AWS_ACCESS_KEY_ID`` and
  ``AWS_SECRET_ACCESS_KEY``; the profile (``profile``, ``AWS_PROFILE``) in ``~/.aws/credentials`` and ``~/.aws/config``.
  With the extra ``s3``, AWS's whole chain: roles, SSO, containers, instances.
- Google Cloud Storage: arguments of ``GCSOptions`` (``access_key`` with ``secret_key``, ``token``, ``credentials``,
  ``credentials_process``, ``credentials_file``, ``credentials_json``, ``anonymous``); ``GCS_KEY`` and ``GCS_SECRET``.
  With the extra ``gcs``, application default credentials: ``GOOGLE_APPLICATION_CREDENTIALS``,
  ``gcloud auth application-default login``, the metadata server.
- Azure Blob Storage: arguments of ``AzureOptions`` (``account_key``, ``sas_token``, ``connection_string``, ``token``,
  ``credential``, ``anonymous``); ``AZURE_STORAGE_CONNECTION_STRING``, ``AZURE_STORAGE_ACCOUNT_KEY``,
  ``AZURE_STORAGE_SAS_TOKEN``. With the extra ``azure``, managed identity and ``az login``.
- Alibaba OSS: arguments of ``OSSOptions`` (``access_key`` with ``secret_key``, ``credentials``,
  ``credentials_process``, ``credentials_file``, ``ecs_role``, ``anonymous``); ``OSS_ACCESS_KEY_ID`` and
  ``OSS_ACCESS_KEY_SECRET``; ``ALIBABA_CLOUD_CREDENTIALS_FILE``; the instance's role.
- Hugging Face Hub: ``token`` of ``HFOptions``; ``HF_TOKEN``; ``hf auth login``. Web servers: ``token``,
  ``username`` with ``password``, or ``netrc`` of ``HTTPOptions``.

A container or a worker process has other variables and files than a shell: look there.
"""

from penstock.engine.contracts.credentials import BearerToken, Credentials

__all__ = ["BearerToken", "Credentials"]
