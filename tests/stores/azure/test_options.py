"""Options of Azure refuse contradictions at once and show no secret."""

import pickle

import pytest

from penstock.errors import ConfigError, Unusable
from penstock.stores.azure.options import AzureOptions

SECRETS = {
    "account_key": "c2VjcmV0",
    "sas_token": "sv=1&sig=secret",
    "connection_string": "AccountName=a;AccountKey=secret",
    "token": "secret",
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_neither_shown_nor_pickled_into_a_file(name):
    options = AzureOptions(account="mine", **{name: SECRETS[name]})
    assert SECRETS[name] not in repr(options)
    with pytest.raises(Unusable, match=name):
        pickle.dumps(options)


def test_nonsecret_azure_options_are_pickled_and_shown():
    options = AzureOptions(account="mine", endpoint="https://h", checksums=False)
    assert pickle.loads(pickle.dumps(options)) == options
    assert "mine" in repr(options)


def test_two_kinds_of_credentials_contradict_one_another():
    with pytest.raises(ConfigError, match="account_key and sas_token contradict"):
        AzureOptions(account_key="a", sas_token="b")
    with pytest.raises(ConfigError, match="token and anonymous=True contradict"):
        AzureOptions(token="a", anonymous=True)
    with pytest.raises(ConfigError, match="get_token"):
        AzureOptions(credential="text")
