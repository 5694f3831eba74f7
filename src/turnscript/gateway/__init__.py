"""Owns the gateway: a server between clients that speak chat APIs and backends that continue text."""
